// SPDX-License-Identifier: Apache-2.0

// Package accesslog counts the requests for sites and logs them to a file in
// the combined log format.
package accesslog
