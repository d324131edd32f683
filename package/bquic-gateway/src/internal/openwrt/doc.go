// SPDX-License-Identifier: Apache-2.0

// Package openwrt tells procd, by way of the init script, how to run a daemon,
// and makes the files and directories that the daemon needs. All defaults are
// the schema's: the script knows none.
package openwrt
