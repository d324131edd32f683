// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"bquic/internal/upstream"
)

// maxWays is how many targets are remembered that a gateway has reached: the last one may be gone when it is needed. The last place is IPv4's,
// unless another one is: IPv6 may fail alone.
const maxWays = 4

// A way is how the kernel would have forwarded a connection.
type way struct {
	target  netip.AddrPort
	forward expectation
}

// opened records that the gateway has opened a connection. It makes a new list, as prompt may be reading the one before.
func (s *session) opened(w way) {
	k := s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lates = nil
	ways, four := []way{w}, w.target.Addr().Is4()
	for _, other := range k.ways {
		is4 := other.target.Addr().Is4()
		if other.target != w.target && len(ways) < maxWays && (four || is4 || len(ways) < maxWays-1) {
			ways, four = append(ways, other), four || is4
		}
	}
	k.ways = ways
}

// reach finds out whether one of the last targets, each time another one, can be reached without the gateway, to tell a gateway that is gone from a
// path that is: only in the first case do connections gain from a reset. A refusal shows it, too. Datagrams need no
// reset; without any other connection the relay forwards them as soon as their session has ended.
func (s *session) reach() {
	k := s.known
	k.mu.Lock()
	var w way
	known := len(k.ways)
	if known > 0 {
		w = k.ways[k.tried%known]
		k.tried++
	}
	k.mu.Unlock()
	ok := true
	if known > 0 {
		ctx, cancel := context.WithTimeout(s.conn.Context(), upstream.CloseAfter)
		defer cancel()
		d := net.Dialer{Control: w.forward.control}
		conn, err := d.DialContext(ctx, "tcp", w.target.String())
		if err == nil {
			conn.Close()
		}
		ok = err == nil || errors.Is(err, syscall.ECONNREFUSED)
	}
	s.tell(func(h *upstream.Session, _ time.Time) upstream.Do {
		h.Reached(ok)
		return 0
	})
}
