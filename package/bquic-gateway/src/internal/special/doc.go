// SPDX-License-Identifier: Apache-2.0

// Package special knows the addresses that are no place on the Internet.
package special
