// SPDX-License-Identifier: Apache-2.0

// Package system replaces files atomically, and shortens the system's errors.
package system
