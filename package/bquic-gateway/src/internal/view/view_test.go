// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/quic-go/quic-go"

	"bquic/internal/gateway"
	"bquic/internal/processor"
	"bquic/internal/proof"
	"bquic/internal/relay"
	"bquic/internal/site"
	"bquic/internal/status"
	"bquic/internal/tunnel"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func check(t *testing.T, got, want string) {
	t.Helper()
	if got != strings.TrimPrefix(want, "\n") {
		t.Errorf("got\n%s\nwant%s", got, want)
	}
}

// TestGateway draws the gateway's own types as encoded on the socket.
func TestGateway(t *testing.T) {
	st := gateway.Status{
		Daemon: status.Daemon{Role: "gateway", Version: "1.2.3", Uptime: 90061}, Listen: "[::]:8443", Pin: "sha256/abc",
		Profiles: []string{"bquic", "standard"}, Live: 12, Total: 345, TCP: 3, Requests: 7, Sent: 1_234_567, Received: 999,
		Origins: []site.OriginStatus{{URL: "http://192.0.2.1", Up: true}, {URL: "http://192.0.2.2", Error: "connection refused"}},
		Tunnels: &tunnel.Stats{Open: 2, Places: 500, Total: 9, Up: 1000, Down: 2_500_000_000, Uplink: true,
			Peers: []*tunnel.Peer{{Name: "north", Open: 2, Total: 9, Up: 1000, Down: 2_500_000_000, Refused: 1}}},
	}
	st.Refused.Rate, st.Refused.Full, st.Refused.Retry = 4, 2, 99
	st.Tunnels.Denied = 12
	for i := range 12 {
		c := gateway.Connection{Remote: fmt.Sprintf("192.0.2.%d:4433", i), Profile: "bquic", Since: 75, DataPerAck: 24.96}
		c.TransportStats.PacketsSent, c.TransportStats.PacketsLost, c.TransportStats.SmoothedRTT = 1000, 7, 12_340*time.Microsecond
		st.Connections = append(st.Connections, c)
	}
	st.Connections = append(st.Connections, gateway.Connection{Remote: "closed", Closed: true})
	check(t, Gateway(marshal(t, st), now), `
gateway 1.2.3, up for 1 d 1 h
  listen       [::]:8443
  pin          sha256/abc
  profiles     bquic, standard
  connections  12 QUIC, 3 TCP; 345 QUIC since the start
  requests     7; 1.23 MB sent, 999 B received
  refused      full 2, rate 4, no valid token 12
  tunnels      2 of 500 now, 9 since the start; 1 kB up, 2.5 GB down
  uplink       works

  peer   tunnels  since the start  refused  up    down
  north  2        9                1        1 kB  2.5 GB

  origin            state  
  http://192.0.2.1  up     
  http://192.0.2.2  away   connection refused

  connection      profile  age         RTT ms  packets  lost  packets/ACK
`+strings.Join(repeat(10, func(i int) string {
		return fmt.Sprintf("  192.0.2.%d:4433  bquic    1 min 15 s  12.3    1000     7     25.0\n", i)
	}), "")+`  and 2 more
`)
}

func repeat(n int, f func(int) string) (all []string) {
	for i := range n {
		all = append(all, f(i))
	}
	return all
}

func TestRelay(t *testing.T) {
	st := struct {
		Role    string  `json:"role"`
		Version string  `json:"version"`
		Uptime  float64 `json:"uptime_s"`
		Profile string  `json:"profile"`
		Reload  any     `json:"reload"`
		relay.Status
	}{Role: "relay", Version: "1.2.3", Uptime: 59, Profile: "bquic", Reload: map[string]any{"at": now.Add(-time.Hour), "error": "bquic:3: relay.x: unknown option"}}
	st.Status = relay.Status{
		Gateway: "g.example:8443", State: "up", Since: now.Add(-2 * time.Minute), Taking: true,
		Gateways:    []relay.GatewayStatus{{Address: "g.example:8443", State: "up", Weight: 1000, Streams: 3}, {Address: "h.example:8443", State: "away", Weight: 999, Error: "no answer"}},
		Carried:     relay.Count{Now: 3, Total: 10, Up: 10, Down: 20_000},
		Direct:      relay.Count{Total: 1},
		Refused:     5,
		Late:        2,
		Avoided:     1,
		Limit:       3,
		Processor:   processor.Status{Takes: "small", Why: processor.WhySlow, Carries: 8.12e6, Path: 30.4e6, Share: 0.5, Used: 0.012},
		UDP:         relay.FlowStatus{Now: 1, Total: 2, Lost: 3},
		Connections: []relay.ConnectionStatus{{Remote: "192.0.2.1:8443", Since: now.Add(-time.Minute), Healthy: true, State: "up", Streams: 3, RTT: 20 * time.Millisecond, Burst: quic.BurstStats{MinRTT: 4 * time.Millisecond}}},
		Clients:     []relay.ClientStatus{{Address: "10.0.0.2", Connections: 3, Sent: 10, Received: 999_600, Direct: 1000}},
	}
	check(t, Relay(marshal(t, st), now), `
relay 1.2.3, up for 59 s
  gateway      g.example:8443
  state        up for 2 min 0 s, takes new connections
  processor    carries 8.1 Mbit/s, path 30 Mbit/s: TCP goes direct; uses 1 % of one, may use 50 %
  profile      bquic
  carried      3 now, 10 since the start; 10 B up, 20 kB down
  direct       0 now, 1 since the start; 0 B up, 0 B down
  full         all 3 places are taken: further connections go direct
  refused      5 by the gateway, and 2 had no answer from it in time; targets that it does not reach: 1
  UDP          flows: 1 now, 2 since the start; datagrams lost: 3
  reload       1 h 0 min ago: bquic:3: relay.x: unknown option

  gateway         state  weight  streams  
  g.example:8443  up     1000    3        
  h.example:8443  away   999     0        no answer

  session         state  age        streams  RTT ms  least  packets  lost
  192.0.2.1:8443  up     1 min 0 s  3        20.0    4.0    0        0

  client    connections  sent  received  directly
  10.0.0.2  3            10 B  1 MB      1 kB
`)
}

// TestRelayTakes: a relay takes connections only if nothing keeps it from that, and only then its processor's decision has an effect.
func TestRelayTakes(t *testing.T) {
	for _, tc := range []struct {
		state, why string
		taking     bool
		verdict    proof.Verdict
		wants      []string
	}{
		{"up", "", true, proof.Faster, []string{"up, takes new connections\n", ": connections are carried;"}},
		{"up", "", false, proof.Faster, []string{"up, new connections go direct\n", ": fast enough;"}},
		{"away", "", false, proof.Faster, []string{"away, new connections go direct\n", ": fast enough;"}},
		{"up", "", true, proof.Spared, []string{"up, new connections go direct: carried ones were slower, or got no answer\n", ": fast enough;"}},
		{"up", processor.WhySlow, false, proof.Unsure, []string{"up, new connections go direct\n", ": TCP goes direct;"}},
	} {
		got := Relay(marshal(t, relay.Status{State: tc.state, Taking: tc.taking, Proof: proof.Report{Verdict: tc.verdict},
			Processor: processor.Status{Takes: "all", Why: tc.why, Carries: 42e6, Path: 25e6}}), now)
		for _, part := range tc.wants {
			if !strings.Contains(got, part) {
				t.Errorf("%+v: no %q in\n%s", tc, part, got)
			}
		}
	}
}

// TestOther: a daemon of another version, with fields of other types, is shown as far as possible.
func TestOther(t *testing.T) {
	got := Gateway(json.RawMessage(`{"listen":":1","pid":"x","version":"9\u001b[2J","connections":7,"refused":[1],"tunnels":{"open":"many"}}`), now)
	for _, part := range []string{"gateway 9?[2J, up for 0 s\n", "  listen       :1\n", "  refused      none\n"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in\n%s", part, got)
		}
	}
}

// FuzzView: whatever a daemon sends, no control character reaches the terminal, and the text is bounded.
func FuzzView(f *testing.F) {
	f.Add([]byte(`{"role":"gateway","connections":[{"remote":"\u001b[2J","since_s":1e308}],"tunnels":{},"origins":[{"url":"\n\n"}],"refused":{"full":1}}`))
	f.Add([]byte(`{"role":"relay","gateways":[{"address":"a\tb"}],"since":"0000-01-01T00:00:00Z","clients":[{}],"uptime_s":-1,"connections":[{"rtt_ns":9223372036854775807}]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, text := range []string{Gateway(data, now), Relay(data, now)} {
			if !strings.HasSuffix(text, "\n") || strings.Count(text, "\n") > 60 {
				t.Errorf("%d lines", strings.Count(text, "\n"))
			}
			for line := range strings.Lines(text) {
				if bad := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(c rune) bool { return !unicode.IsPrint(c) }); bad >= 0 {
					t.Errorf("%q", line)
				}
			}
		}
	})
}
