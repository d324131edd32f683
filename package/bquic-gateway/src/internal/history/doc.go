// SPDX-License-Identifier: Apache-2.0

// Package history records a daemon's activity of the last hours: a sample per minute,
// in a ring of fixed size.
package history
