// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/qerr"

	"github.com/stretchr/testify/require"
)

func TestMinAckDelayDraft00(t *testing.T) {
	d := 3 * time.Millisecond
	p := &TransportParameters{MinAckDelay: &d, MinAckDelayDraft00: &d, MaxAckDelay: 25 * time.Millisecond, ActiveConnectionIDLimit: 2}
	var got TransportParameters
	require.NoError(t, got.Unmarshal(p.Marshal(protocol.PerspectiveClient), protocol.PerspectiveClient))
	require.Equal(t, d, *got.MinAckDelayDraft00)
	require.Equal(t, d, *got.MinAckDelay)

	p.MinAckDelayDraft00 = nil
	got = TransportParameters{}
	require.NoError(t, got.Unmarshal(p.Marshal(protocol.PerspectiveClient), protocol.PerspectiveClient))
	require.Nil(t, got.MinAckDelayDraft00)
}

// A min_ack_delay above max_ack_delay is an error, in either form.
func TestMinAckDelayBeyondMaxAckDelay(t *testing.T) {
	atMost, beyond := 25*time.Millisecond, 25*time.Millisecond+time.Microsecond
	for _, tc := range []struct {
		name             string
		current, draft00 *time.Duration
		err              string
	}{
		{"both at the limit", &atMost, &atMost, ""},
		{"the current form", &beyond, nil, "min_ack_delay (25.001ms) is greater than max_ack_delay (25ms)"},
		{"the first draft's", nil, &beyond, "min_ack_delay (25.001ms) is greater than max_ack_delay (25ms)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &TransportParameters{MinAckDelay: tc.current, MinAckDelayDraft00: tc.draft00, MaxAckDelay: 25 * time.Millisecond, ActiveConnectionIDLimit: 2}
			err := new(TransportParameters).Unmarshal(p.Marshal(protocol.PerspectiveClient), protocol.PerspectiveClient)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			var transportErr *qerr.TransportError
			require.ErrorAs(t, err, &transportErr)
			require.Equal(t, qerr.TransportParameterError, transportErr.ErrorCode)
			require.ErrorContains(t, err, tc.err)
		})
	}
}
