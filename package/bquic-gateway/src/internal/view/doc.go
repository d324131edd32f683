// SPDX-License-Identifier: Apache-2.0

// Package view draws for people what daemons say on their status sockets.
package view
