// SPDX-License-Identifier: Apache-2.0

// Command flows stands where a relay does, between clients and a server, and writes what a relay knows of each
// connection when it has ended, one JSON object a line: when it was accepted, the client's port, its session, class and record.
//
//	flows -listen ADDR -to ADDR [-delay DURATION]
//
// It splices as the relay does. What the server says comes later by a delay, as it would over an Internet path; when the
// standard input ends, so does it.
package main
