// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"log/slog"
	"net/netip"

	"bquic/internal/peer"
)

// newHandler returns a handler for relays that present token.
func newHandler(allow []netip.Prefix) *Handler {
	return handlerFor(Access{Peers: []peer.Config{{Name: "north", Tokens: []peer.Hash{peer.HashOf(token)}}}, Allow: allow})
}

func handlerFor(a Access) *Handler {
	h := &Handler{Logger: slog.New(slog.DiscardHandler)}
	h.SetAccess(a)
	return h
}
