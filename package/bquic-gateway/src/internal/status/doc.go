// SPDX-License-Identifier: Apache-2.0

// Package status answers, on a unix socket, what a daemon is doing: whoever
// connects, and writes what it asks for, is sent one JSON object.
package status
