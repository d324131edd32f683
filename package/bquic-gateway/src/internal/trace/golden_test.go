// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the expected reports of the recorded files")

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden compares the reports of recorded connections: a download of 60 kB from the
// gateway, recorded by the gateway and by bquic fetch, and another one recorded by aioquic.
func TestGolden(t *testing.T) {
	for _, name := range []string{"client.sqlog", "server.sqlog", "aioquic.qlog"} {
		t.Run(name, func(t *testing.T) {
			reports, err := Read(bytes.NewReader(recorded(t, name)))
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			for _, r := range reports {
				if err := r.Text(&text); err != nil {
					t.Fatal(err)
				}
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, text.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if text.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", &text, want)
			}
		})
	}
}

// TestBothEnds compares the records of both ends of a connection.
func TestBothEnds(t *testing.T) {
	report := func(name string) *Report {
		return read(t, string(recorded(t, name)))
	}
	client, server := report("client.sqlog"), report("server.sqlog")
	if got, want := client.Received.Packets, server.Sent.Packets-server.Losses.Packets; got != want {
		t.Errorf("the client received %d packets, %d were sent and not lost", got, want)
	}
	if client.Received.Acks < server.Sent.Acks || server.Sent.Acks == 0 {
		t.Errorf("the client sent %d ACKs, the server received %d", client.Received.Acks, server.Sent.Acks)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(synthetic()))
	f.Add([]byte("\x1e{\"trace\":{\"vantage_point\":{\"type\":\"client\"}}}\n\x1e{\"time\":1e308,\"name\":\"transport:packet_sent\",\"data\":{\"header\":{\"packet_type\":\"1RTT\"},\"raw\":{\"length\":1e308}}}"))
	f.Add([]byte(`{"time":-1e308,"name":"recovery:metrics_updated","data":{"congestion_window":1e308,"latest_rtt":1e308,"min_rtt":-1}}{"time":1e308,"name":"a:packet_lost","data":{}}`))
	f.Add([]byte(`{"traces":[{"common_fields":{"time_format":"delta"},"vantage_point":{"type":"<svg>&\u0007"},"events":[{"time":"1e308","name":"a"},{"time":"1e308","name":"b"}]}]}`))
	f.Add([]byte(`{"trace":{"events":[]}}{"time":1,"name":"x:packet_received","data":{"header":{"packet_type":"1RTT"},"frames":[{"frame_type":"ack","acked_ranges":[[9,1],[],[-1]]}]}}`))
	f.Add([]byte(`{"time":0,"name":"recovery:metrics_updated","data":{"congestion_window":5e-324}}{"time":5e-324,"name":"a:packet_lost","data":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		reports, err := Read(bytes.NewReader(b))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") && !strings.HasPrefix(err.Error(), "not a qlog") {
				t.Errorf("the error names no line: %v", err)
			}
			return
		}
		var text, svg bytes.Buffer
		for _, r := range reports {
			if err := r.Text(&text); err != nil {
				t.Fatal(err)
			}
			if len(r.Timeline.Cwnd) > maxBins {
				t.Fatalf("%d bins", len(r.Timeline.Cwnd))
			}
		}
		if _, err := json.Marshal(reports); err != nil {
			t.Fatal(err) // a NaN, for example
		}
		if err := SVG(&svg, reports); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"NaN", "Inf"} {
			if strings.Contains(text.String(), bad) || strings.Contains(svg.String(), "\""+bad) {
				t.Errorf("%s in a report", bad)
			}
		}
	})
}
