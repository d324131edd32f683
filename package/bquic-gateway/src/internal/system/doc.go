// SPDX-License-Identifier: Apache-2.0

// Package system replaces files atomically, resolves names, shortens the system's errors, makes text fit for a terminal, and keeps timers together.
package system
