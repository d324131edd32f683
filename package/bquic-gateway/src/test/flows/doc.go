// SPDX-License-Identifier: Apache-2.0

// Command flows takes the place of a relay between clients and a server. For each connection that has ended, it writes what a
// relay knows about it, one JSON object per line: when it was accepted, the client's port, its session, class and record.
//
//	flows -listen ADDR -to ADDR [-delay DURATION] [-idle DURATION]
//
// It splices like the relay. A delay, as of an Internet path, applies to data from the server, and a server
// that is idle closes a connection after a time without data. The command ends with its
// standard input.
package main
