// SPDX-License-Identifier: Apache-2.0

// Package view renders the answers of the daemons' status sockets as text.
package view
