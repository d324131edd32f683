// SPDX-License-Identifier: Apache-2.0

// Package cert loads or makes the gateway's certificates, reads the certificates of authorities, and checks pins.
package cert
