// SPDX-License-Identifier: Apache-2.0

// Package dnstest is a name server for tests.
package dnstest
