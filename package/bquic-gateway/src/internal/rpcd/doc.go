// SPDX-License-Identifier: Apache-2.0

// Package rpcd is a plugin for OpenWrt's rpcd, which provides the ubus object "bquic".
package rpcd
