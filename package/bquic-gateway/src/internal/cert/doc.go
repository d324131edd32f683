// SPDX-License-Identifier: Apache-2.0

// Package cert loads or makes the gateway's certificate, reads those of authorities, and checks one against a pin.
package cert
