// SPDX-License-Identifier: Apache-2.0

// Package config parses the UCI file /etc/config/bquic into typed values for
// the daemons, and reports every mistake in it.
package config
