// SPDX-License-Identifier: Apache-2.0

// Package system replaces files atomically, resolves names, shortens the system's errors, and keeps timers together.
package system
