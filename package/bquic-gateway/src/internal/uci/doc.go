// SPDX-License-Identifier: Apache-2.0

// Package uci parses OpenWrt's UCI text format exactly as libuci does, and
// records the line of each value.
package uci
