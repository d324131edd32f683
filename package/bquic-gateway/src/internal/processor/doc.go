// SPDX-License-Identifier: Apache-2.0

// Package processor decides whether a relay's processor can carry what the path would:
// it is a bottleneck like any other. It takes time and counts, and has no clock.
package processor
