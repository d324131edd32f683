// SPDX-License-Identifier: Apache-2.0

// Package history keeps what a daemon did in the last hours: a sample a minute, in
// a ring whose size is fixed.
package history
