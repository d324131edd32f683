// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

func TestBuiltin(t *testing.T) {
	// The paper's values, written down independently.
	want := map[string]quic.Burst{
		"standard": {Stats: true, BlackHoles: true},
		"bquic-2019": {
			AckPackets: 10, AckDelay: 25 * time.Millisecond, AckRTTDivisor: 4, AckRTT: quic.BurstMinRTT,
			AckAfter: 100, BurstPackets: quic.BurstUnlimited, Stats: true, BlackHoles: true,
		},
		"modquic": {WindowUpdates: true, Stats: true, BlackHoles: true},
	}
	set := NewSet()
	for name, burst := range want {
		if got := set[name].Burst; got != burst {
			t.Errorf("%s: got %+v\nwant %+v", name, got, burst)
		}
	}
	if b := set[BQUIC].Burst; b.AckPackets != quic.BurstUnlimited || b.BurstPackets != 64 || !b.AskPeer || !b.FastPMTU {
		t.Errorf("bquic: %+v", b)
	}
	for _, p := range Builtin() {
		for _, v := range p.Values {
			if v.Source == "" {
				t.Errorf("%s: %s has no source", p.Name, v.Param)
			}
		}
	}
	if got := set.Names(); !slices.Equal(got, []string{"standard", "bquic", "bquic-2019", "bquic-thesis", "modquic"}) {
		t.Errorf("names %q", got)
	}
	if _, err := set.Get("none"); err == nil || !strings.Contains(err.Error(), `unknown profile "none"`) {
		t.Errorf("got %v", err)
	}
}

func TestParams(t *testing.T) {
	for _, test := range []struct {
		param, text string
		want        quic.Burst
		err         string
	}{
		{"ack_packets", "0", quic.Burst{AckPackets: quic.BurstUnlimited}, ""},
		{"ack_packets", "10", quic.Burst{AckPackets: 10}, ""},
		{"ack_packets", "unlimited", quic.Burst{}, `"unlimited" is not a whole number, nor 0`},
		{"congestion", "rate", quic.Burst{Congestion: quic.BurstRate}, ""},
		{"congestion", "cubic", quic.Burst{}, `"cubic" is neither reno nor rate`},
		{"burst_packets", "unlimited", quic.Burst{BurstPackets: quic.BurstUnlimited}, ""},
		{"burst_packets", "0", quic.Burst{}, "0 is not in the range 1 to 10000, nor unlimited"},
		{"ack_delay", "7", quic.Burst{AckDelay: 7 * time.Millisecond}, ""},
		{"ack_delay", "7ms", quic.Burst{}, `"7ms" is not a whole number`},
		{"ack_rtt", "min", quic.Burst{AckRTT: quic.BurstMinRTT}, ""},
		{"ack_rtt", "queue", quic.Burst{AckRTT: quic.BurstQueueRTT}, ""},
		{"gso", "0", quic.Burst{NoGSO: true}, ""},
		{"gso", "1", quic.Burst{}, ""},
		{"gso", "", quic.Burst{}, `"" is neither 0 nor 1`},
		{"loss_packets", "2", quic.Burst{}, "2 is not in the range 3 to 1000"},
		{"window_updates", "yes", quic.Burst{WindowUpdates: true}, ""},
		{"slow_start_max", "32", quic.Burst{SlowStartMax: 32 * time.Millisecond}, ""},
	} {
		var got quic.Burst
		err := lookup(test.param).Set(&got, test.text)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s %q: %+v, %v", test.param, test.text, got, err)
		}
	}
	if lookup("none") != nil {
		t.Error("found a parameter that is not there")
	}
}

func FuzzParams(f *testing.F) {
	for _, s := range []string{"0", "-1", "10", "unlimited", "min", "queue", "yes", "99999999999999999999", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for i := range Params {
			p := &Params[i]
			b := quic.Burst{}
			if (p.Set(&b, s) == nil) != (p.Check(s) == nil) {
				t.Errorf("%s: Set and Check differ on %q", p.Name, s)
			}
			if p.Check(s) != nil && b != (quic.Burst{}) {
				t.Errorf("%s: %q is wrong and was set", p.Name, s)
			}
		}
	})
}
