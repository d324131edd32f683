// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/protocol"

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
