// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/processor"
	"bquic/internal/upstream"
)

// A quota is a control group that limits a process to a share of one processor.
type quota struct {
	t    *testing.T
	path string
	v2   bool
}

func newQuota(p *process) *quota {
	p.t.Helper()
	q := &quota{t: p.t}
	base := "/sys/fs/cgroup/cpu" // cgroup v1
	if controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil && slices.Contains(strings.Fields(string(controllers)), "cpu") {
		q.v2, base = true, "/sys/fs/cgroup"
	}
	q.path = filepath.Join(base, fmt.Sprintf("bquic-%d", p.cmd.Process.Pid))
	if err := os.Mkdir(q.path, 0o755); err != nil {
		p.t.Skipf("no control group for processors: %v", err)
	}
	p.t.Cleanup(func() { // before the process must end
		_ = os.WriteFile(filepath.Join(base, "cgroup.procs"), fmt.Append(nil, p.cmd.Process.Pid), 0)
		if err := os.Remove(q.path); err != nil {
			p.t.Error(err)
		}
	})
	// Other processes must not slow it down.
	if q.v2 {
		q.write("cpu.weight", "10000")
	} else {
		q.write("cpu.shares", "200000")
	}
	q.write("cgroup.procs", fmt.Sprint(p.cmd.Process.Pid))
	return q
}

func (q *quota) write(file, text string) {
	q.t.Helper()
	if err := os.WriteFile(filepath.Join(q.path, file), []byte(text), 0); err != nil {
		q.t.Fatal(err)
	}
}

// set sets the share, with a period of 20 ms, or longer if the quota would be less than a
// millisecond.
func (q *quota) set(share float64) {
	q.t.Helper()
	period := min(max(20e3, math.Ceil(1e3/share)), 1e6)
	run := max(period*share, 1e3)
	if q.v2 {
		q.write("cpu.max", fmt.Sprintf("%.0f %.0f", run, period))
		return
	}
	q.lift()
	q.write("cpu.cfs_period_us", fmt.Sprintf("%.0f", period))
	q.write("cpu.cfs_quota_us", fmt.Sprintf("%.0f", run))
}

func (q *quota) lift() {
	q.t.Helper()
	if q.v2 {
		q.write("cpu.max", "max")
	} else {
		q.write("cpu.cfs_quota_us", "-1")
	}
}

// A download reads from an origin that sends forever.
type download struct {
	conn net.Conn
	mu   sync.Mutex
	read int
	err  error
}

func newDownload(conn net.Conn) *download {
	d := &download{conn: conn}
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := conn.Read(b)
			d.mu.Lock()
			d.read, d.err = d.read+n, err
			d.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *download) state() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read, d.err
}

// goesOn waits until more data has arrived.
func (d *download) goesOn(m *mesh) {
	m.t.Helper()
	before, _ := d.state()
	m.eventually("what was carried goes on", func() bool {
		read, err := d.state()
		if err != nil {
			m.t.Fatalf("what was carried has ended: %v", err)
		}
		return read > before+16<<10
	})
}

// TestStarved checks that while the processor has too little time to carry at the path's
// full rate, new connections go direct, and carried ones stay.
func TestStarved(t *testing.T) {
	m := newMesh(t)
	shape := func(rate float64) { // bit/s
		for _, end := range []string{"node", "gateway"} {
			m.run(end, strings.Fields(fmt.Sprintf("tc qdisc replace dev mesh root tbf rate %.0f burst 100000 latency 50ms", rate))...)
		}
	}
	shape(4e6)
	m.greet(":80")
	m.listen(":90", func(conn *net.TCPConn) {
		for b := make([]byte, 16<<10); ; {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	})
	m.startGateway()
	cfg := m.config(divert.Redirect)
	cfg.CPUShare = 100 // with the race detector, carrying takes ten times the processor time
	node := m.start("node", role{Relay: &cfg})
	q := newQuota(node)

	conn, err := m.dial(origin4 + ":90")
	if err != nil {
		t.Fatal(err)
	}
	first := newDownload(conn)
	fastEnough := func(f figures) bool { return f.Relay.Taking && f.Relay.Processor.Path > 3e6 }
	known := node.await("the path to show its rate", fastEnough).Relay.Processor
	// However fast the processor is, a quarter of what the path then needs is enough for all the rest that the relay does.
	fast := max(4e6, 0.2*known.Carries/known.Share)
	shape(fast)
	known = node.await("the path to become faster", func(f figures) bool { return f.Relay.Taking && f.Relay.Processor.Path > 0.75*fast }).Relay.Processor
	conn.Close()
	_, _ = first.state()
	old := m.carry(node, origin4+":90")
	carried := newDownload(old)
	carried.goesOn(m)

	cost := known.Share / known.Carries
	q.set(0.25 * cost * known.Path)
	f := node.await("the relay to notice", func(f figures) bool { return f.Relay.Processor.Why == processor.WhyBusy && !f.Relay.Taking })
	if way := m.way(origin4 + ":80"); way != "forwarded" {
		t.Errorf("a new connection of a starved relay was %s: %s", way, f.Relay.Processor.Reason)
	}
	carried.goesOn(m)
	if state := node.figures().Relay.State; state != "up" {
		t.Errorf("the gateway of a starved relay is %s", state)
	}

	q.lift()
	node.await("the relay to notice", func(f figures) bool { return f.Relay.Taking })
	m.eventually("connections are carried again", func() bool { return m.way(origin4+":80") == "carried" })
	carried.goesOn(m)
}

// cpuTime returns the processor time that the process has used.
func (p *process) cpuTime() time.Duration {
	p.t.Helper()
	const schedClock = 2 // CPUCLOCK_SCHED of a process, linux/posix-timers_types.h
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|schedClock), &ts); err != nil {
		p.t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// TestBusyIsNotSilent opens 200 connections per second, fifteen times as many as the
// processor can handle. None may fail, and the gateway must not count as silent while
// starved time does not count.
func TestBusyIsNotSilent(t *testing.T) {
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	t.Setenv("GOMAXPROCS", "1")                     // as on a router, where goroutines wait for the only processor
	node := m.startRelay(m.config(divert.Redirect)) // which must carry regardless of the cost
	const rate, seconds = 200, 5
	before := node.cpuTime()
	const few = 50
	for range few {
		m.way(origin4 + ":80")
	}
	share := (node.cpuTime() - before).Seconds() / few * rate / 15
	newQuota(node).set(share)
	start := time.Now()
	failed := make(chan string, rate*seconds)
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for range rate * seconds {
		<-tick.C
		wg.Go(func() {
			conn, err := m.dial(origin4 + ":80")
			if err != nil {
				failed <- err.Error()
				return
			}
			defer conn.Close()
			if answer, err := io.ReadAll(conn); err != nil || len(answer) == 0 {
				failed <- fmt.Sprintf("%q, %v", answer, err)
			}
		})
	}
	time.Sleep(time.Until(start.Add(upstream.CloseAfter)))
	if log := node.log.String(); strings.Contains(log, "no gateway answers") {
		t.Error("the gateway was thought to be away")
	}
	wg.Wait()
	close(failed)
	for failure := range failed {
		t.Errorf("a connection failed: %s", failure)
	}
	c := node.figures().Relay
	t.Logf("share %.4f, %d carried, %d direct, of %d", share, c.Carried.Total-few, c.Direct.Total, rate*seconds)
}
