// SPDX-License-Identifier: Apache-2.0

// Package profile holds the named sets of transport parameters: every value of every
// profile, with its unit and its source.
package profile
