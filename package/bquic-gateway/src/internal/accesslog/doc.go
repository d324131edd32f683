// SPDX-License-Identifier: Apache-2.0

// Package accesslog counts the requests for sites, and writes them to a file in
// the combined format.
package accesslog
