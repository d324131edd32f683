// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"bquic/internal/config"
)

// TestAddressInUse checks that a gateway that cannot listen for metrics or redirects says so, and does not report that it
// is ready.
func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for says, cfg := range map[string]config.Gateway{address: {Metrics: address}, "gateway.redirect": {Redirect: address}} {
		s, err := New(complete(t, cfg), "test", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		select {
		case <-s.Ready():
			t.Errorf("%s: ready", says)
		default:
		}
	}
}
