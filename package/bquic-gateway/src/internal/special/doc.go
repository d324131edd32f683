// SPDX-License-Identifier: Apache-2.0

// Package special knows the addresses that are not on the public Internet.
package special
