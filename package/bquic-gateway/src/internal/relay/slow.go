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
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.lates, network) {
		s.lates = append(s.lates, network)
	}
	if s.judging || len(s.lates) < lateNetworks {
		return false
	}
	s.judging, s.lates = true, nil
	return true
}

// judge finds out whether the gateway is slow. As long as it is, new connections go by other gateways, or direct.
func (s *session) judge(ctx context.Context) {
	slow := false
	for end := time.Now().Add(slowTime); s.state() == upstream.Up && time.Now().Before(end) && !s.prompt(ctx); {
		slow = true
		s.setSlow(true)
		select {
		case <-ctx.Done():
			return
		case <-time.After(askSlow):
		}
	}
	s.mu.Lock()
	s.judging = false
	s.mu.Unlock()
	if slow {
		s.setSlow(false)
	}
}

func (s *session) setSlow(slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = slow
}

// prompt reports whether the gateway answers in time about one of the targets that it has reached, or has reached none yet.
func (s *session) prompt(ctx context.Context) bool {
	s.mu.Lock()
	ways := s.ways
	s.mu.Unlock()
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

// free reports whether new connections may go by the session.
func (s *session) free() bool {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	return !slow && !s.full()
}
