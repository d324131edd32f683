// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"net/http"
)

// earlyData is the header field with which an intermediary marks a request that
// can be a replay (RFC 8470, section 5.1).
const earlyData = "Early-Data"

type earlyKey struct{}

// Early marks a request that arrived in early data. It can be a replay until
// handshake is closed, at the end of the client's handshake.
func Early(r *http.Request, handshake <-chan struct{}) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), earlyKey{}, handshake))
}

// early returns the channel that Early was given. It is nil if the request is not
// early, is no longer early, or must not be retried.
func early(ctx context.Context) <-chan struct{} {
	handshake, _ := ctx.Value(earlyKey{}).(<-chan struct{})
	return handshake
}

// await waits for the end of the client's handshake.
func await(ctx context.Context, handshake <-chan struct{}) error {
	select {
	case <-handshake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
