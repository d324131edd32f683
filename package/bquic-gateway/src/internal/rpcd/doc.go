// SPDX-License-Identifier: Apache-2.0

// Package rpcd answers OpenWrt's rpcd, which makes it the ubus object "bquic".
package rpcd
