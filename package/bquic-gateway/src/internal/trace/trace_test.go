// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/cert"
	"bquic/internal/profile"
)

func read(t *testing.T, qlog string) *Report {
	t.Helper()
	reports, err := Read(strings.NewReader(qlog))
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 1 {
		t.Fatalf("%d reports", len(reports))
	}
	return reports[0]
}

// synthetic returns a qlog whose figures can be computed by hand: 10 bursts of 4 packets, 50
// µs apart, one burst every 10 ms from 100 ms on, an ACK after each burst, packet 7 lost, and
// packet 11 declared lost spuriously.
func synthetic() string {
	var b strings.Builder
	add := func(t float64, name, data string) {
		fmt.Fprintf(&b, "\x1e{\"time\":%v,\"name\":%q,\"data\":%s}\n", t, name, data)
	}
	b.WriteString("\x1e" + `{"file_schema":"urn:ietf:params:qlog:file:sequential","trace":{"vantage_point":{"type":"server"}}}` + "\n")
	add(0, "transport:packet_received", `{"header":{"packet_type":"initial","packet_number":0},"raw":{"length":1200},"frames":[{"frame_type":"crypto"}]}`)
	add(1, "recovery:congestion_state_updated", `{"new":"slow_start"}`)
	add(2, "recovery:metrics_updated", `{"min_rtt":20,"smoothed_rtt":20,"latest_rtt":20,"congestion_window":40000,"bytes_in_flight":0}`)
	pn := 0
	for burst := range 10 {
		at := 100 + 10*float64(burst)
		for i := range 4 {
			add(at+0.05*float64(i), "transport:packet_sent",
				fmt.Sprintf(`{"header":{"packet_type":"1RTT","packet_number":%d},"raw":{"length":1000},"frames":[{"frame_type":"stream"}]}`, pn))
			pn++
		}
		switch burst {
		case 3:
			add(at+4, "recovery:packet_lost", `{"header":{"packet_type":"1RTT","packet_number":7},"trigger":"reordering_threshold"}`)
			add(at+4, "recovery:packet_lost", `{"header":{"packet_type":"1RTT","packet_number":11},"trigger":"time_threshold"}`)
			add(at+4, "recovery:packet_lost", `{"header":{"packet_type":"1RTT","packet_number":99},"is_mtu_probe_packet":true,"trigger":"time_threshold"}`)
			add(at+4, "recovery:congestion_state_updated", `{"new":"recovery"}`)
			add(at+4, "recovery:metrics_updated", `{"min_rtt":20,"smoothed_rtt":30,"latest_rtt":40,"congestion_window":28000,"bytes_in_flight":9000}`)
		case 5:
			add(at+4, "transport:packet_received", `{"header":{"packet_type":"1RTT","packet_number":5},"raw":{"length":40},
				"frames":[{"frame_type":"ack","acked_ranges":[[0,6],[8,"23"]]}]}`) // two lines
			continue
		case 6:
			add(at+4, "transport:packet_sent", `{"header":{"packet_type":"1RTT","packet_number":1000},"raw":{"length":30},"frames":[{"frame_type":"ack","acked_ranges":[[1]]}]}`)
			add(at+4, "transport:packet_received", `{"header":{"packet_type":"1RTT","packet_number":6},"raw":{"length":50},
				"frames":[{"frame_type":"ack","acked_ranges":[[0,6],[8,27]]},{"frame_type":"ack_frequency","ack_eliciting_threshold":9,"request_max_ack_delay":4.5,"reordering_threshold":3}]}`)
			continue
		}
		add(at+4, "transport:packet_received", `{"header":{"packet_type":"1RTT","packet_number":1},"raw":{"length":40},"frames":[{"frame_type":"ack","acked_ranges":[[2]]}]}`)
	}
	add(200, "transport:packet_sent", `{"header":{"packet_type":"1RTT","packet_number":40},"raw":{"length":500},"frames":[{"frame_type":"ping"},{"frame_type":"padding"}]}`)
	return b.String()
}

func TestKnownAnswers(t *testing.T) {
	r := read(t, synthetic())
	equal := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near := func(what string, got, want, share float64) {
		t.Helper()
		if math.Abs(got-want) > share*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	equal("side", r.VantagePoint, "server")
	near("seconds", r.Seconds, 0.2, 1e-9)
	equal("truncated", r.Truncated, false)
	equal("frames", r.FramesRecorded, true)

	s := r.Sent
	equal("sent", s.Packets, uint64(41))
	equal("bytes", s.Bytes, 40500.)
	equal("ACKs received", s.Acks, uint64(10))
	equal("packets per ACK", s.DataPerAck, 4.1)
	// 30 gaps of 50 µs, and 10 of 9.85 ms.
	near("median", s.InterPacketUS.Median, 50, 0.01)
	near("90%", s.InterPacketUS.P90, 9850, 0.01)
	near("longest", s.InterPacketUS.Max, 9850, 1e-6)
	near("mean", s.InterPacketUS.Mean, (30*50+10*9850)/40., 1e-6)
	equal("below 100 µs", s.Below100us, 30./40)
	for _, b := range s.Histogram {
		want := map[float64]uint64{100: 30, 10e3: 10}[b.Below]
		equal(fmt.Sprintf("below %v µs", b.Below), b.Count, want)
	}
	equal("bursts", s.Bursts, uint64(11)) // the ping is one
	equal("longest burst", s.BurstLength.Max, 4.)
	equal("median burst", s.BurstLength.Median, 4.)
	near("mean burst", s.BurstLength.Mean, 41/11., 1e-9)
	for _, b := range s.BurstLengths {
		want := map[float64]uint64{2: 1, 5: 10}[b.Below]
		equal(fmt.Sprintf("bursts below %v", b.Below), b.Count, want)
	}
	// 1 ms: 100 windows, 10 of them with 4 packets: variance 16/10 - 0.4². 10 ms: 4 packets in each.
	if len(s.Dispersion) != 2 {
		t.Fatalf("dispersion: %v", s.Dispersion)
	}
	near("dispersion in 1 ms", s.Dispersion[0].Index, (1.6-0.16)/0.4, 1e-9)
	equal("dispersion in 10 ms", s.Dispersion[1].Index, 0.)

	equal("received", r.Received.Packets, uint64(1)) // the one with ACK_FREQUENCY
	equal("ACKs sent", r.Received.Acks, uint64(1))

	equal("lost", r.Losses.Packets, uint64(2))
	equal("by reordering", r.Losses.ByReordering, uint64(1))
	equal("by time", r.Losses.ByTime, uint64(1))
	equal("by mistake", r.Losses.Spurious, uint64(1))
	equal("MTU probes", r.Losses.MTUProbes, uint64(1))

	equal("least RTT", r.RTT.MinMS, 20.)
	equal("smoothed RTT", r.RTT.SmoothedMS, 30.)
	near("largest RTT", r.RTT.LatestMS.Max, 40, 1e-9)
	equal("first window", r.CongestionWindow.First, 40000.)
	equal("last window", r.CongestionWindow.Last, 28000.)
	equal("slow start", r.SlowStart, SlowStart{Recorded: true, Ended: true, AtMS: 134, Reason: "loss", Cwnd: 40000, RTTMS: 40, MinRTTMS: 20})
	equal("ACK_FREQUENCY frames", r.AckFrequency.Frames, uint64(1))
	equal("ACK_FREQUENCY", r.AckFrequency.First[0], AckFrequency{164, "received", 9, 4.5, 3})

	equal("bin", r.Timeline.BinMS, 1.)
	equal("window at 50 ms", r.Timeline.Cwnd[50], 40000.)
	equal("window at 190 ms", r.Timeline.Cwnd[190], 28000.)
	equal("lost at 134 ms", r.Timeline.Lost[134], 2.)
	near("rate at 150 ms", r.Timeline.SentMbps[150], 4*8000/1e3, 1e-9)
}

func TestSlowStartReasons(t *testing.T) {
	const header = `{"trace":{"vantage_point":{"type":"server"}}}` +
		`{"time":1,"name":"recovery:congestion_state_updated","data":{"new":"slow_start"}}` +
		`{"time":2,"name":"recovery:metrics_updated","data":{"congestion_window":50000,"min_rtt":5,"latest_rtt":30}}`
	for _, tt := range []struct{ name, events, want string }{
		{"delay", `{"time":9,"name":"recovery:congestion_state_updated","data":{"new":"congestion_avoidance"}}`, "ended after 8.0 ms at 50.0 KB: the RTT rose"},
		{"idle before", `{"time":8,"name":"recovery:congestion_state_updated","data":{"new":"application_limited"}}` +
			`{"time":9,"name":"quic:congestion_state_updated","data":{"new":"congestion_avoidance"}}`, "the RTT rose"},
		{"our own words", `{"time":9,"name":"transport:slow_start_ended","data":{"message":"a round's least RTT was 50ms"}}` +
			`{"time":9,"name":"recovery:congestion_state_updated","data":{"new":"congestion_avoidance"}}`, "the RTT rose (a round's least RTT was 50ms)"},
		{"mark", `{"time":9,"name":"recovery:congestion_state_updated","data":{"new":"recovery"}}`, "ECN-CE"},
		{"none", ``, "not ended"},
		{"again", `{"time":9,"name":"recovery:congestion_state_updated","data":{"new":"congestion_avoidance"}}` +
			`{"time":10,"name":"recovery:congestion_state_updated","data":{"new":"slow_start"}}`, "; 1 more afterwards"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := read(t, header+tt.events).SlowStart.text(); !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	// Without states, inferred from the threshold.
	r := read(t, `{"trace":{"vantage_point":{"type":"client"}}}`+
		`{"time":1,"name":"recovery:metrics_updated","data":{"cwnd":12000}}{"time":5,"name":"recovery:metrics_updated","data":{"cwnd":6000,"ssthresh":6000}}`)
	if s := r.SlowStart; !s.Ended || s.AtMS != 4 || s.Recorded {
		t.Errorf("%+v", s)
	}
}

// TestForms has one connection in each form of qlog.
func TestForms(t *testing.T) {
	events := []string{
		`{"time":10,"name":"transport:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":1},"raw":{"length":100},"frames":[{"frame_type":"ping"}]}}`,
		`{"data":{"header":{"packet_type":"1RTT","packet_number":2},"raw":{"length":100},"frames":[{"frame_type":"stream"}]},"name":"quic:packet_sent","time":30}`,
	}
	for name, qlog := range map[string]string{
		"JSON-SEQ":        "\x1e" + `{"qlog_format":"JSON-SEQ","trace":{"vantage_point":{"type":"client"}}}` + "\n\x1e" + events[0] + "\n\x1e" + events[1] + "\n",
		"lines":           `{"trace":{"vantage_point":{"type":"client"}}}` + "\n" + events[0] + "\n" + events[1] + "\n",
		"JSON":            `{"qlog_format":"JSON","traces":[{"vantage_point":{"type":"client"},"events":[` + events[0] + "," + events[1] + `]}]}`,
		"events first":    `{"traces":[{"vantage_point":{"type":"client"},"events":[` + events[0] + "," + events[1] + `],"common_fields":{"a":[{"b":1}]}}]}`,
		"side last":       `{"traces":[{"events":[` + events[0] + "," + events[1] + `],"vantage_point":{"type":"client"}}]}`,
		"relative events": `{"trace":{"vantage_point":{"type":"client"},"common_fields":{"time_format":"relative_to_previous_event"}}}` + events[0] + strings.Replace(events[1], `"time":30`, `"time":20`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			r := read(t, qlog)
			if r.VantagePoint != "client" || r.Sent.Packets != 2 || r.Sent.InterPacketUS.Max != 20e3 || r.Seconds != 0.02 {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("two connections", func(t *testing.T) {
		reports, err := Read(strings.NewReader(`{"traces":[{"vantage_point":{"type":"client"},"events":[` + events[0] + `]},{"vantage_point":{"type":"server"},"events":[` + events[1] + `]}]}`))
		if err != nil || len(reports) != 2 || reports[0].VantagePoint != "client" || reports[1].VantagePoint != "server" || reports[1].Sent.Packets != 1 {
			t.Errorf("%v %v", reports, err)
		}
		reports, err = Read(strings.NewReader(`{"trace":{"vantage_point":{"type":"server"}}}` +
			strings.Replace(events[0], `"time"`, `"group_id":"aa","time"`, 1) + strings.Replace(events[1], `"data"`, `"group_id":"bb","data"`, 1)))
		if err != nil || len(reports) != 2 || reports[0].GroupID != "aa" || reports[1].GroupID != "bb" || reports[1].VantagePoint != "server" {
			t.Errorf("%v %v", reports, err)
		}
	})
	t.Run("without frames", func(t *testing.T) { // as quinn writes it
		r := read(t, `{"trace":{"vantage_point":{"type":"server"}}}`+
			`{"time":1,"name":"transport:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":1,"length":1200}}}`)
		if r.FramesRecorded || r.Sent.Packets != 1 || r.Sent.Bytes != 1200 {
			t.Errorf("%+v", r)
		}
	})
}

func TestErrors(t *testing.T) {
	const header = "\x1e{\"trace\":{\"vantage_point\":{\"type\":\"client\"}}}\n"
	for _, tt := range []struct{ name, qlog, want string }{
		{"empty", "", "not a qlog: it has neither a qlog header nor events"},
		{"other JSON", `{"a":1}`, "not a qlog: it has neither"},
		{"text", "hello", "line 1: invalid JSON: invalid character 'h'"},
		{"array", "\n[]", "line 2: not a qlog: not a JSON object"},
		{"garbage in a line", header + "\x1e{\"time\":1,\"name\":\"a:b\",\"data\":{}}\n\x1e{\"time\":2,oops}\n", "line 3: invalid JSON"},
		{"garbage between lines", header + "oops\n", "line 2: invalid JSON"},
		{"a wrong type", header + "\n\x1e{\"time\":\"soon\",\"name\":\"a:b\",\"data\":{}}\n", `line 3: time: "soon" is not a number`},
		{"a wrong type within an event", header + "\x1e{\"time\":1,\"name\":\"transport:packet_sent\",\"data\":{\"header\":[]}}\n", "line 2: transport:packet_sent: header: unexpected array"},
		{"events before 0.3", `{"traces":[{"vantage_point":{"type":"client"},"events":[[1,"transport","packet_sent",{}]]}]}`, "qlog before version 0.3 is not supported"},
		{"nested", strings.Repeat(`{"trace":`, 50), "objects are nested too deeply"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(tt.qlog))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		r := io.MultiReader(strings.NewReader(header+`{"x":"`), io.LimitReader(letters{}, 1<<30))
		if _, err := Read(r); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
			t.Error(err)
		}
	})
	t.Run("too many", func(t *testing.T) {
		var b strings.Builder
		for i := range maxTraces + 1 {
			fmt.Fprintf(&b, `{"time":1,"group_id":"%d","name":"a:b","data":{}}`, i)
		}
		if _, err := Read(strings.NewReader(b.String())); err == nil || !strings.Contains(err.Error(), "more than 64 connections") {
			t.Error(err)
		}
	})
	t.Run("reading fails", func(t *testing.T) {
		want := errors.New("disk on fire")
		if _, err := Read(io.MultiReader(strings.NewReader(header), failing{want})); !errors.Is(err, want) {
			t.Error(err)
		}
	})
}

type letters struct{}

func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestLive cuts a file anywhere after its header, as if it were still being written.
func TestLive(t *testing.T) {
	whole := synthetic()
	start := strings.Index(whole, "\n")
	events := read(t, whole).Events
	for end := start; end < len(whole); end += 7 {
		r := read(t, whole[:end])
		if r.Events > events || r.Events+1 < uint64(strings.Count(whole[:end], "\x1e"))-1 {
			t.Fatalf("%d events of %d bytes", r.Events, end)
		}
		if cut := whole[end-1] != '}' && whole[end-1] != '\n' && whole[end-1] != 0x1e; cut && !r.Truncated {
			t.Fatalf("%d bytes: not taken as truncated: %q", end, whole[end-10:end])
		}
	}
}

// TestAgainstStats compares a report with the connection's own statistics, which other code
// counts, on a path that loses packets.
func TestAgainstStats(t *testing.T) {
	p, err := profile.NewSet().Get(profile.BQUIC)
	if err != nil {
		t.Fatal(err)
	}
	clientStats, serverStats, clientLog, serverLog := transfer(t, p, 4<<20)
	for _, side := range []struct {
		name  string
		stats quic.BurstStats
		log   []byte
	}{{"client", clientStats, clientLog}, {"server", serverStats, serverLog}} {
		t.Run(side.name, func(t *testing.T) {
			r := read(t, string(side.log))
			s := side.stats
			for _, c := range []struct {
				what      string
				got, want uint64
			}{
				{"sent", r.Sent.Packets, s.PacketsSent},
				{"received", r.Received.Packets, s.PacketsReceived},
				{"ACKs sent", r.Received.Acks, s.AcksSent},
				{"ACKs received", r.Sent.Acks, s.AcksReceived},
				{"lost", r.Losses.Packets, s.PacketsLost},
			} {
				if c.got != c.want {
					t.Errorf("%s: %d, the connection counted %d", c.what, c.got, c.want)
				}
			}
			// On a busy machine, an acknowledgement may come when the connection has forgotten that it took the packet for lost.
			if got, least := r.Losses.Spurious, s.PacketsLostSpurious; got < least || got > r.Losses.Packets {
				t.Errorf("lost by mistake: %d, the connection counted %d", got, least)
			}
			if r.VantagePoint != side.name || r.Truncated {
				t.Errorf("%s, truncated %v", r.VantagePoint, r.Truncated)
			}
			if strings.Contains(string(side.log), "http3:") {
				t.Error("HTTP/3 is recorded")
			}
		})
	}
	if r := read(t, string(serverLog)); r.Losses.Packets == 0 || !r.SlowStart.Ended || r.Sent.Packets < 2900 {
		t.Errorf("the path should lose packets and slow start should end: %+v", r.Losses)
	}
}

// transfer downloads over loopback on a socket that loses and delays packets.
func transfer(t *testing.T, p profile.Profile, size int) (client, server quic.BurstStats, clientLog, serverLog []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pair, _, err := cert.LoadOrCreate(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	conf := func(l *memory) *quic.Config { return &quic.Config{Burst: p.Burst, Tracer: ToFile(l)} }
	var atClient, atServer memory
	ln, err := quic.Listen(&lossy{PacketConn: socket}, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"x"}}, conf(&atServer))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := quic.DialAddr(ctx, socket.LocalAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"x"}}, conf(&atClient))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(0, "")
	accepted, err := ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.CloseWithError(0, "")
	out, err := accepted.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = out.Write(make([]byte, size))
		out.Close()
	}()
	in, err := conn.AcceptUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, in); err != nil || n != int64(size) {
		t.Fatalf("%d bytes: %v", n, err)
	}
	// The server closes first: otherwise its last ACK would be outstanding.
	accepted.CloseWithError(0, "")
	<-conn.Context().Done()
	conn.CloseWithError(0, "")
	for _, l := range []*memory{&atClient, &atServer} {
		if !l.closed.Load() {
			t.Fatal("a record is not complete when its connection is closed")
		}
	}
	return conn.BurstStats(), accepted.BurstStats(), atClient.Bytes(), atServer.Bytes()
}

type memory struct {
	bytes.Buffer
	closed atomic.Bool
}

func (m *memory) Close() error { m.closed.Store(true); return nil }

// lossy loses one packet in 150, and holds back one in 400 until 200 more are sent.
type lossy struct {
	net.PacketConn
	n    int
	held []byte
}

func (l *lossy) WriteTo(b []byte, to net.Addr) (int, error) {
	l.n++
	switch {
	case l.n < 100:
	case l.n%150 == 0:
		return len(b), nil
	case l.n%400 == 0:
		l.held = slices.Clone(b)
		return len(b), nil
	case l.n%400 == 200 && l.held != nil:
		if _, err := l.PacketConn.WriteTo(l.held, to); err != nil {
			return 0, err
		}
		l.held = nil
	}
	return l.PacketConn.WriteTo(b, to)
}
