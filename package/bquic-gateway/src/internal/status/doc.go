// SPDX-License-Identifier: Apache-2.0

// Package status serves a daemon's status on a Unix socket. A client connects,
// writes the name of the answer that it wants, and receives one JSON object.
package status
