// SPDX-License-Identifier: Apache-2.0

// Package openwrt tells procd, through the init script, how to run a daemon,
// and makes the files and directories that the daemon needs. All defaults come
// from the schema; the script has none.
package openwrt
