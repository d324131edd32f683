// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/quic-go/quic-go/http3"

	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

// The uplink of a gateway may be so full that the gateway reaches all servers, but too late: connections have gone direct by then, after
// answerTimeout. One late server tells nothing, and those that file sharing looks for are often dead. So after a few the relay asks for servers that
// the gateway has reached.
const (
	// lateNetworks is how many networks in a row must have been late.
	lateNetworks = 3
	// askSlow is how often the relay asks a slow gateway.
	askSlow = 5 * time.Second
	// slowTime is how long it asks. The servers may have gone, so clients' connections then find out.
	slowTime = 2 * time.Minute
)

// late records that the gateway's answer about a target was late. It reports whether to call judge.
func (s *session) late(target netip.Addr) bool {
	bits := 48
	if target.Is4() {
		bits = 24
	}
	network, _ := target.Prefix(bits)
	k := s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.lates, network) {
		k.lates = append(k.lates, network)
	}
	if k.judging || len(k.lates) < lateNetworks {
		return false
	}
	k.judging, k.lates = true, nil
	return true
}

// judge finds out whether the gateway is slow. As long as it is, new connections go by other gateways, or direct.
func (s *session) judge(ctx context.Context) {
	for end := time.Now().Add(slowTime); s.state() == upstream.Up && time.Now().Before(end) && !s.prompt(ctx); {
		s.known.mu.Lock()
		s.known.slow = true
		s.known.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(askSlow):
		}
	}
	s.known.mu.Lock()
	s.known.judging, s.known.slow = false, false
	s.known.mu.Unlock()
}

// prompt reports whether the gateway answers in time about one of the targets that it has reached, or has reached none yet.
func (s *session) prompt(ctx context.Context) bool {
	s.known.mu.Lock()
	ways := s.known.ways
	s.known.mu.Unlock()
	answers := make(chan bool, len(ways))
	for _, w := range ways {
		go func() {
			str, err := s.request(ctx, w.target.String(), nil)
			if err == nil {
				err = answer(str)
			}
			if err == nil {
				tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
			}
			var refusal *tunnel.Refusal
			answers <- err == nil || errors.As(err, &refusal)
		}()
	}
	for range ways {
		if <-answers {
			return true
		}
	}
	return len(ways) == 0
}

// free reports whether new connections may go by the session's gateway.
func (s *session) free() bool {
	s.known.mu.Lock()
	slow := s.known.slow
	s.known.mu.Unlock()
	return !slow && !s.full()
}
