// SPDX-License-Identifier: Apache-2.0

//go:build !burstdefault

package burst

// Default is the Config of connections that have none.
var Default Config
