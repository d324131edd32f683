// SPDX-License-Identifier: Apache-2.0

// Package metrics writes metrics in Prometheus' text format 0.0.4, and serves them.
// The Prometheus client library would make the router's binary a tenth larger.
package metrics
