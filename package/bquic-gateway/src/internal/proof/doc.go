// SPDX-License-Identifier: Apache-2.0

// Package proof says whether a relay helps where it stands. It keeps a control group: of the
// new connections that the relay would carry, some are drawn to go direct, and both groups
// are compared. It takes time and chance as arguments, and has neither a clock nor dice.
//
// Why it can be believed:
//
//   - Who is drawn is chance alone. What time of day, client, server and kind of content do to a
//     connection, they do to both groups. A connection belongs to the group that it was drawn
//     for, whatever became of it (intention to treat): one that the gateway refused and the relay
//     then made directly is one of the carried, and what that cost is a cost of the relay. What
//     goes direct for another reason was not drawn, and is in no group.
//   - The share that is drawn changes from day to day, and when auto turns. Groups with other
//     shares are never put together, or a busy day with many drawn would look like a slow way:
//     differences are taken within a day, a quarter of it and a class of size, and their mean,
//     weighted by what they tell (n1*n0/(n1+n0), as a regression with fixed effects has it), is
//     the result.
//   - Times are compared as logarithms, by means with Welch's interval. Transfers' sizes and times
//     have heavy tails (Crovella and Bestavros 1997). With 30 in the smaller group and times of
//     Pareto's kind, 71 of 100 intervals of plain means hold the truth, and 93 of logarithms
//     (TestWhyLogarithms). Ratios of medians would do as well; they need the values,
//     or sketches of them, for each day, quarter and class, where a mean needs three numbers.
//   - The class is that of the bytes that the client was sent, which the server's content decides. The way
//     decides it where somebody gives up waiting, or a video chooses its quality: such a connection
//     counts where it ended, with the time that it took.
//   - Time is that in which the client waited for something: from its first byte to the last one for it,
//     without the pauses between a byte for it and its next request. A connection that is
//     kept open measures no user.
//   - What a client opens at a server within 5 s is a session, mostly a page load, and is drawn as one: its connections go the
//     same way. They are no independent draws, so only the first of them counts as a connection, and all together as a session,
//     whose time is that in which the client waited for any of them.
//   - A session's class is that of most of its bytes, by a tree that knows bytes and packets of a connection. What it gets wrong it
//     gets wrong in both groups, nearly: the way may decide a few packets more or less, so a class's result is less sure than
//     the one of all pages.
//   - Connections without an answer have no time, and would flatter the way that loses the slow ones.
//     They are counted, and compared, too.
//
// What it does not say: how it would be without any relay. Who goes direct shares the mesh with
// what is carried, and is accepted by the node as well, which spares the client a round trip that it would
// wait without the relay: the comparison is a little unfair to the relay.
package proof
