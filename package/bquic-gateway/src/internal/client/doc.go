// SPDX-License-Identifier: Apache-2.0

// Package client loads URLs by HTTP/3 and measures the transfers.
package client
