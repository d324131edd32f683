// SPDX-License-Identifier: Apache-2.0

// Package config turns the UCI file /etc/config/bquic into values that the
// daemons take, and names every mistake in it.
package config
