// SPDX-License-Identifier: Apache-2.0

// Package uci reads OpenWrt's UCI text format exactly as libuci does, and
// remembers in which line each value stands.
package uci
