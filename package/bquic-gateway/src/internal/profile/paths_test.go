// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// A randomPath is a path of the experiment `paths`: drawn with a seed, or written down because
// the sender has failed on it.
type randomPath struct {
	Name      string
	Seed      uint64
	Number    uint64
	Upload    bool
	Rate      float64 // Mbit/s
	RTT       time.Duration
	Buffer    int
	CoDel     bool
	Loss      float64
	LossBurst float64       // packets in a row that are lost, on average
	Reorder   float64       // packets that are overtaken
	Late      time.Duration // delay of overtaken packets
	WiFi      bool          // one hop of 802.11 at that rate instead of a wire
	Change    time.Duration // when rate and RTT change; 0: never
	Rate2     float64
	RTT2      time.Duration
	Size      int
	Window    uint64 // receive window, bytes; 0: larger than the path needs
}

// productWindow is the largest receive window of gateways and relays, in bytes. A larger one can have more gaps than
// quic-go takes.
const productWindow = 3 << 20

// pathsPerSeed is how many paths a seed draws.
const pathsPerSeed = 50

// drawPath draws one of the paths of a seed.
func drawPath(seed, number uint64) randomPath {
	r := rand.New(rand.NewPCG(seed, number))
	logUniform := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	p := randomPath{
		Seed:   seed,
		Number: number,
		Upload: r.IntN(2) == 0,
		Rate:   logUniform(1, 300),
		RTT:    time.Duration(logUniform(1, 600) * 1e6),
		Buffer: int(logUniform(5, 2000)),
	}
	if p.CoDel = r.IntN(5) == 0; p.CoDel {
		p.Buffer = 2000
	}
	if r.IntN(2) == 0 {
		p.Loss, p.LossBurst = logUniform(0.0001, 0.03), 1
		if r.IntN(2) == 0 {
			p.LossBurst = 2 + 6*r.Float64()
		}
	}
	if r.IntN(5) == 0 {
		p.Reorder = logUniform(0.0005, 0.02)
		p.Late = time.Duration(float64(p.RTT) * r.Float64() / 2)
	}
	p.WiFi = r.IntN(4) == 0
	seconds := 4 * (0.5 + r.Float64())
	p.Size = int(min(max(p.Rate*1e6/8*seconds, 256<<10), 6<<20))
	p.Rate2, p.RTT2 = p.Rate, p.RTT
	if r.IntN(4) == 0 {
		p.Change = time.Duration((0.2 + 0.4*r.Float64()) * float64(p.Size) * 8 / p.Rate * 1e3)
		p.Change += 4 * p.RTT
		change := r.IntN(3)
		if change != 1 {
			p.Rate2 = tenfold(p.Rate, 1, 300, r.IntN(2) == 0)
		}
		if change != 0 {
			p.RTT2 = time.Duration(tenfold(float64(p.RTT)/1e6, 1, 600, r.IntN(2) == 0) * 1e6)
		}
	}
	return p
}

// tenfold is ten times v or a tenth of it, whichever is in the range.
func tenfold(v, low, high float64, up bool) float64 {
	if up && v*10 <= high || v/10 < low {
		return min(v*10, high)
	}
	return v / 10
}

func (p randomPath) build(n *network) {
	start := time.Now()
	changed := func() bool { return p.Change > 0 && time.Since(start) >= p.Change }
	delay := func() time.Duration {
		if changed() {
			return p.RTT2 / 2
		}
		return p.RTT / 2
	}
	var channels []*channel
	if p.WiFi {
		c := n.mesh(1, p.Rate*1e6, delay, p.Buffer, p.CoDel)
		channels = []*channel{c}
	} else {
		a, b := n.wire(p.Rate*1e6, delay, p.Buffer, p.CoDel)
		channels = []*channel{a, b}
	}
	if p.Change > 0 {
		time.AfterFunc(p.Change, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, c := range channels {
				c.rate = p.Rate2 * 1e6
			}
		})
	}
	// The faults apply to the direction of the data.
	q := n.toClient
	if p.Upload {
		q = n.toServer
	}
	if p.Loss > 0 {
		// Gilbert's model: in the bad state, all packets are lost.
		bad := false
		q.lose = func() bool {
			switch {
			case bad:
				bad = n.rng.Float64() >= 1/p.LossBurst
			default:
				bad = n.rng.Float64() < p.Loss/p.LossBurst
			}
			return bad
		}
	}
	if p.Reorder > 0 {
		q.reorder = func() time.Duration {
			if n.rng.Float64() < p.Reorder {
				return p.Late
			}
			return 0
		}
	}
}

func (p randomPath) String() string {
	s := fmt.Sprintf("%d/%d, %s%.1f Mbit/s, %.1f ms, buffer %d", p.Seed, p.Number, map[bool]string{true: "up, "}[p.Upload], p.Rate, p.RTT.Seconds()*1e3, p.Buffer)
	if p.CoDel {
		s += ", CoDel"
	}
	if p.Loss > 0 {
		s += fmt.Sprintf(", loss %.2f %% in %.1f", p.Loss*100, p.LossBurst)
	}
	if p.Reorder > 0 {
		s += fmt.Sprintf(", reorder %.2f %% by %.1f ms", p.Reorder*100, p.Late.Seconds()*1e3)
	}
	if p.WiFi {
		s += ", WiFi"
	}
	if p.Change > 0 {
		s += fmt.Sprintf(", at %.1f s %.1f Mbit/s %.1f ms", p.Change.Seconds(), p.Rate2, p.RTT2.Seconds()*1e3)
	}
	return s
}

func (p randomPath) run(t *testing.T, tlsConf *tls.Config, b quic.Burst, repeat uint64) *trial {
	f := &trial{burst: b, upload: p.Upload, window: p.Window}
	transfer(t, tlsConf, p.Seed<<32|p.Number<<8|repeat, p.build, []*trial{f}, p.Size, time.Hour, nil)
	if got := f.received.Load(); got != int64(p.Size) {
		t.Fatalf("%s: got %d of %d bytes", p, got, p.Size)
	}
	return f
}

func profileNamed(name string) Profile {
	ps := Builtin()
	return ps[slices.IndexFunc(ps, func(p Profile) bool { return p.Name == name })]
}

// seedRange returns the seeds in a variable, FIRST-LAST or one. Without them, it skips the test.
func seedRange(t *testing.T, variable string) (first, last uint64) {
	t.Helper()
	seeds := os.Getenv(variable)
	if seeds == "" {
		t.Skip(variable + " is not set")
	}
	a, b, _ := strings.Cut(seeds, "-")
	first, err := strconv.ParseUint(a, 10, 32)
	last, err2 := strconv.ParseUint(cmp.Or(b, a), 10, 32)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return first, last
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func geomean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

// TestPaths compares bquic with stock on the paths of BQUIC_PATHS, as in 6-505.
// With BQUIC_ROWS, it writes rows in the format of results/paths.json to that file.
// BQUIC_PATHS_LONGER=10 transfers ten times as many bytes.
func TestPaths(t *testing.T) {
	first, last := seedRange(t, "BQUIC_PATHS")
	longer := 1
	if s := os.Getenv("BQUIC_PATHS_LONGER"); s != "" {
		var err error
		if longer, err = Number(s, 1, 1000); err != nil {
			t.Fatalf("BQUIC_PATHS_LONGER: %v", err)
		}
	}
	tlsConf := tlsConfig(t)
	var ratios []float64
	var rows []map[string]any
	for i := first * pathsPerSeed; i < (last+1)*pathsPerSeed; i++ {
		p := drawPath(i/pathsPerSeed, i%pathsPerSeed)
		p.Size *= longer
		if longer > 1 {
			p.Window = productWindow
		}
		repeats := uint64(1)
		if p.random() {
			repeats = 10
		}
		c := p.compare(t, tlsConf, 0, repeats)
		t.Log(c)
		ratios = append(ratios, c.ratio())
		rows = append(rows, c.row())
	}
	slices.Sort(ratios)
	below := func(limit float64) int {
		n, _ := slices.BinarySearch(ratios, limit)
		return n
	}
	t.Logf("%d paths: geometric mean %.3f, worst %.3f, below 0.95 %d, below 0.90 %d", len(ratios), geomean(ratios), ratios[0], below(0.95), below(0.90))
	writeRows(t, rows)
}

// random says if runs of the path differ: also by which packet is on its way when it changes.
func (p randomPath) random() bool { return p.Loss > 0 || p.WiFi || p.Reorder > 0 || p.Change > 0 }

// A comparison holds the results of stock and bquic on a path.
type comparison struct {
	path            randomPath
	standard, bquic float64   // Mbit/s
	lost            [2]uint64 // packets of each
}

func (c comparison) ratio() float64 { return c.bquic / c.standard }

func (c comparison) String() string {
	return fmt.Sprintf("%.3f  %.2f/%.2f lost %d/%d  %s %.1f MB", c.ratio(), c.bquic, c.standard, c.lost[1], c.lost[0], c.path, float64(c.path.Size)/1e6)
}

// compare runs both senders repeats times, with the same loss and reordering for each, and takes the medians:
// a long burst of losses now and then stalls either sender for a minute.
func (p randomPath) compare(t *testing.T, tlsConf *tls.Config, first, repeats uint64) comparison {
	t.Helper()
	c := comparison{path: p}
	var took [2][]float64
	for i, name := range []string{Standard, BQUIC} {
		for repeat := range repeats {
			f := p.run(t, tlsConf, profileNamed(name).Burst, first+repeat)
			took[i] = append(took[i], f.done.Seconds())
			c.lost[i] += f.lost
		}
	}
	mbit := float64(p.Size) * 8 / 1e6
	c.standard, c.bquic = mbit/median(took[0]), mbit/median(took[1])
	return c
}

// row is a row of results/paths.json: Mbit/s, ms, packets, bytes; loss and reordering as shares.
func (c comparison) row() map[string]any {
	p := c.path
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	return map[string]any{
		"seed": p.Seed, "number": p.Number, "direction": map[bool]string{false: "download", true: "upload"}[p.Upload],
		"rate_mbps": p.Rate, "rtt_ms": ms(p.RTT), "buffer_packets": p.Buffer, "codel": p.CoDel,
		"loss": p.Loss, "loss_burst": p.LossBurst, "reorder": p.Reorder, "late_ms": ms(p.Late), "wifi": p.WiFi,
		"change_ms": ms(p.Change), "rate2_mbps": p.Rate2, "rtt2_ms": ms(p.RTT2), "size": p.Size,
		"mbps_standard": c.standard, "mbps_bquic": c.bquic,
	}
}

// writeRows writes rows for the lab's experiments to the file BQUIC_ROWS, if that is set.
func writeRows(t *testing.T, rows []map[string]any) {
	t.Helper()
	name := os.Getenv("BQUIC_ROWS")
	if name == "" {
		return
	}
	data, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A leg of 802.11 in virtual time: an approximation of the real medium (`bquic-mesh`).
type leg struct {
	hops  int
	rtt   time.Duration
	rate  float64
	total int // bytes
}

var legs = []leg{
	{1, 0, 65e6, 10 << 20}, {1, 20 * time.Millisecond, 65e6, 10 << 20}, {1, 45 * time.Millisecond, 65e6, 10 << 20},
	{3, 0, 65e6, 10 << 20}, {3, 20 * time.Millisecond, 65e6, 10 << 20}, {3, 45 * time.Millisecond, 65e6, 10 << 20},
	{5, 0, 65e6, 10 << 20}, {5, 20 * time.Millisecond, 65e6, 10 << 20}, {5, 45 * time.Millisecond, 65e6, 10 << 20},
	{3, 20 * time.Millisecond, 39e6, 10 << 20}, {3, 20 * time.Millisecond, 65e6, 1 << 20},
	{3, 0, 65e6, 60 << 20}, {5, 0, 65e6, 60 << 20}, {3, 20 * time.Millisecond, 65e6, 60 << 20},
}

func (l leg) String() string {
	return fmt.Sprintf("%d hops %s %.0f Mbit/s %d MB", l.hops, l.rtt, l.rate/1e6, l.total>>20)
}

// run transfers total bytes with f. It returns the Mbit/s, and by how many ms the smoothed RTT
// exceeds the minimum on average, without the first third.
func (l leg) run(t *testing.T, tlsConf *tls.Config, seed uint64, f *trial) (mbps, queue float64) {
	t.Helper()
	build := func(n *network) { n.mesh(l.hops, l.rate, func() time.Duration { return l.rtt / 2 }, 8192, true) }
	queue = queueOf(t, tlsConf, seed, build, f, l.total)
	return f.mbps(), queue
}

// queueOf transfers total bytes with f. It returns by how many ms the smoothed RTT exceeds the minimum on average, without
// the first third.
func queueOf(t *testing.T, tlsConf *tls.Config, seed uint64, build func(*network), f *trial, total int) (mean float64) {
	t.Helper()
	var queues []float64 // ten per second
	transfer(t, tlsConf, seed, build, []*trial{f}, total, time.Hour, func(time.Duration) {
		if f.sending != nil {
			st := f.sending.ConnectionStats()
			queues = append(queues, (st.SmoothedRTT-st.MinRTT).Seconds()*1e3)
		}
	})
	queues = queues[len(queues)/3:]
	for _, q := range queues {
		mean += q / float64(len(queues))
	}
	return mean
}

// The mean queue over 40 seeds is 30 to 35 ms, with a standard deviation of 1.6. Where one measurement decides about the window, and one fast
// round that the path has changed, it is 38 to 52 ms.
const (
	queueSeeds = 80
	queueMean  = 38 // ms
)

// TestQueueOfADownload: a window that is much larger than needed becomes small within a few seconds, on most seeds.
func TestQueueOfADownload(t *testing.T) {
	tlsConf := tlsConfig(t)
	l := leg{3, 0, 65e6, 20 << 20}
	var mean float64
	for seed := range uint64(queueSeeds) {
		_, queue := l.run(t, tlsConf, seed+1, &trial{burst: profileNamed(BQUIC).Burst, window: productWindow})
		mean += queue / queueSeeds
	}
	t.Logf("%.0f ms", mean)
	if mean > queueMean {
		t.Errorf("%s: packets wait for %.0f ms on average, not %d or less", l, mean, queueMean)
	}
}

// TestLegs prints the results of each profile on legs of 802.11. BQUIC_LEGS has the seeds.
func TestLegs(t *testing.T) {
	first, last := seedRange(t, "BQUIC_LEGS")
	tlsConf := tlsConfig(t)
	var all []float64
	for _, l := range legs {
		line, base := "", 0.0
		for _, name := range []string{Standard, BQUIC} {
			var runs []float64
			var end, cwnd, queue float64
			for seed := first; seed <= last; seed++ {
				f := &trial{burst: profileNamed(name).Burst}
				mbps, waited := l.run(t, tlsConf, seed, f)
				runs = append(runs, mbps)
				n := float64(last - first + 1)
				end += float64(f.sender.SlowStartWindow) / 1280 / n
				cwnd += float64(f.sender.CongestionWindow) / 1280 / n
				queue += waited / n
			}
			m := geomean(runs)
			if name == Standard {
				base = m
			} else {
				all = append(all, m/base)
			}
			line += fmt.Sprintf("  %s %.2f (%.3f; slow start to %.0f, at last %.0f packets, queue %.0f ms)", name, m, m/base, end, cwnd, queue)
		}
		t.Logf("%s:%s", l, line)
	}
	t.Logf("geometric mean %.3f", geomean(all))
}
