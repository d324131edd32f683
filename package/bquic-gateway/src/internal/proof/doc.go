// SPDX-License-Identifier: Apache-2.0

// Package proof measures whether a relay helps at its location. It keeps a control group: of
// the new connections that the relay would carry, some are drawn at random to go direct, and
// both groups are compared. Times and random numbers are arguments; the package has no clock.
//
// Why the result can be believed:
//
//   - Chance alone decides which connections are drawn. The time of day, the client, the server and
//     the content affect both groups alike. A connection belongs to the group that it was drawn
//     for, whatever happens to it (intention to treat): if the gateway refuses a connection and the
//     relay then makes it directly, it counts as carried, and the delay is a cost of the relay. If the relay
//     reaches no server directly and the gateway then carries the connection, it counts as a direct one without an answer. A
//     connection that goes direct for another reason was not drawn, and is in no group.
//   - The share that is drawn changes from day to day, and when auto switches. It also does when there is a doubt, and when auto
//     no longer draws half of all, which drops the data of the day. Groups with different
//     shares are never pooled, or a busy day with many direct connections would make direct
//     connections look slow. Differences are taken within a day, a quarter of the day and a size
//     class. The result is their mean, weighted by information (n1*n0/(n1+n0), as in a regression
//     with fixed effects).
//   - Times are compared as logarithms, by means with Welch's interval, or that of the variance of both groups if it is wider. Sizes and times of transfers
//     have heavy tails (Crovella and Bestavros 1997). With 30 connections in the smaller group and
//     Pareto-distributed times, 71 of 100 intervals of plain means contain the true value, and 93
//     of logarithms (TestWhyLogarithms). Ratios of medians would do as well, but need the values, or
//     sketches of them, for each day, quarter and class; a mean needs three numbers.
//   - The size class is that of the bytes sent to the client, which the server's content determines.
//     The path affects it only where a user gives up waiting, or a video adapts its quality. Such a
//     connection counts in the class in which it ended, with the time that it took.
//   - Time is the time that the client waited: from its first byte to the last byte for it, without
//     the pauses between a byte for it and its next request. A connection that is merely kept open
//     says nothing about the user's experience.
//   - The connections that a client opens to a server within 5 s are a session, usually a page load; it ends when the client
//     has waited for nothing for half a second.
//     They are drawn together and go the same way. They are not independent draws, so only the
//     first of them counts as a connection. Together they count as a session, whose time is the time
//     that the client waited for any of them.
//   - A session's class is that of most of its bytes, judged by trees that know the bytes and packets
//     of a connection. Its errors affect both groups nearly alike. The path may change the number of
//     packets a little, so the result of a class is less certain than the result of all pages.
//   - What is carried shares a few sessions, so a direct connection that began while the node's clients filled the path would get as much as
//     one of these, and take that from all of them together. Such connections are carried and in no group (Uncompared). Whether the path is
//     full when a connection begins does not depend on the way that it goes, so those that count are still comparable.
//   - While connections that the node makes itself reach no server, none is in a group: carried ones of such an hour would be compared with
//     direct ones of a better one.
//   - Connections without an answer have no time. To ignore them would flatter the way that loses the
//     slow ones, so they are counted and compared, too.
//
// The comparison does not show what would happen without any relay. Direct connections share the
// mesh with carried ones. The node accepts them as well, which saves the client a round trip that
// it would have to wait without the relay. So the comparison is slightly unfair to the relay.
package proof
