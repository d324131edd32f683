// SPDX-License-Identifier: Apache-2.0

// Package site serves the gateway's sites: files below a directory, or a
// reverse proxy for origin servers.
package site
