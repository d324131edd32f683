// SPDX-License-Identifier: Apache-2.0

// Package metrics writes figures for Prometheus, in its text format 0.0.4, and
// serves them. The client library would make the router's binary a tenth larger.
package metrics
