// SPDX-License-Identifier: Apache-2.0

// Package processor decides whether a relay's processor can carry as much as the path,
// because a slow processor is a bottleneck like any other. Times and counts are
// arguments; it has no clock.
package processor
