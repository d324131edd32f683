// SPDX-License-Identifier: Apache-2.0

// Package cert loads or makes the gateway's certificate, and checks one against a pin.
package cert
