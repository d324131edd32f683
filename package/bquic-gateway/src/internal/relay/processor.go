// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go/chacha20poly1305"
	"golang.org/x/sys/unix"

	"bquic/internal/processor"
	"bquic/internal/system"
)

const (
	// measureTime is how much processor time each of the four measurements at the start takes, unless
	// minBatches batches take longer.
	measureTime = 3 * time.Millisecond
	minBatches  = 3
	// packetSize is the size of a QUIC packet before path MTU discovery, in bytes.
	packetSize = 1252
	// wayFactor was measured on a processor with some time to spare (docs/architecture.md). The measured
	// cost of carrying replaces it once traffic is carried.
	wayFactor = 10
)

// A load monitors the processor that this process runs on. It provides a processor.Processor, which
// decides, with a clock and measurements.
type load struct {
	logger *slog.Logger
	aead   cipher.AEAD // used in a rehearsal
	woken  chan struct{}

	mu        sync.Mutex
	processor *processor.Processor
	said      said
}

// said is what was logged last about where connections go.
type said int

const (
	saidNothing said = iota
	saidUnknown      // direct, because the path has not shown its rate
	saidDirect
	saidCarried
)

// newLoad measures the expected cost of carrying.
func newLoad(share float64, logger *slog.Logger) (*load, error) {
	aead, err := fastest()
	if err != nil {
		return nil, fmt.Errorf("cannot measure the processor: %w", err)
	}
	cost, err := costOfPacket(aead)
	if err != nil {
		return nil, fmt.Errorf("cannot measure the processor: %w", err)
	}
	return &load{
		logger:    logger,
		aead:      aead,
		woken:     make(chan struct{}, 1),
		processor: processor.New(time.Now(), share, cost, packetSize),
	}, nil
}

// takes returns which new connections and flows are worth carrying.
func (l *load) takes() processor.Takes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processor.Takes()
}

// fills reports whether what the relay moves fills the path.
func (l *load) fills() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processor.Fills()
}

func (l *load) status() processor.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processor.Status()
}

func (l *load) setShare(share float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processor.SetShare(share)
}

// run monitors the processor until ctx ends. It calls changed when the result of takes changes.
func (l *load) run(ctx context.Context, sample func() processor.Sample, changed func()) {
	next := processor.Interval
	tick := time.NewTimer(system.UntilBeat(next))
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.woken:
			if next > processor.Interval {
				next = processor.Interval
				tick.Reset(system.UntilBeat(next))
			}
			continue
		case <-tick.C:
		}
		s := sample()
		s.CPU = cpuTime()
		var pace float64
		l.tell(changed, func(now time.Time) {
			pace = l.processor.Tick(now, s)
			next = l.processor.Next()
		})
		tick.Reset(system.UntilBeat(next))
		if pace > 0 {
			wg.Go(func() {
				if got, ok := l.rehearse(ctx, pace); ok {
					l.tell(changed, func(now time.Time) { l.processor.Rehearsed(now, pace, got) })
				}
			})
		}
	}
}

// wake makes run read the counters at the next beat, for the first of new connections.
func (l *load) wake() { signal(l.woken) }

// tell passes an event to the state, and logs and reports a change.
func (l *load) tell(changed func(), event func(now time.Time)) {
	l.mu.Lock()
	before := l.processor.Takes()
	event(time.Now())
	after, st := l.processor.Takes(), l.processor.Status()
	// The reason is not compared: on a slow processor that is busy at times, it may change every second.
	say := saidDirect
	switch {
	case st.Why == processor.WhyMeasuring:
		say = l.said
	case after == processor.All:
		say = saidCarried
	case st.Path == 0:
		say = saidUnknown
	}
	news := say != l.said
	l.said = say
	l.mu.Unlock()
	switch {
	case !news:
	case say == saidCarried && st.Share == 0:
		l.logger.Info("connections are carried whatever they cost", "cpu_share", 0)
	case say == saidCarried:
		l.logger.Info("the processor is as fast as the path: connections are carried", "uses", percent(st.Used), "may_use", percent(st.Share))
	case say == saidUnknown:
		l.logger.Info("connections go direct at first", "reason", st.Reason)
	default:
		l.logger.Warn("connections go direct", "reason", st.Reason)
	}
	if after != before {
		changed()
	}
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// rehearse makes this process use a share of one processor for a while, including its other work. It
// returns the share that the process received.
func (l *load) rehearse(ctx context.Context, pace float64) (got float64, ok bool) {
	start, begin := time.Now(), cpuTime()
	packet := make([]byte, packetSize)
	for {
		passed, spent := time.Since(start), cpuTime()-begin
		if ctx.Err() != nil {
			return 0, false
		}
		if passed >= processor.RehearsalTime {
			return spent.Seconds() / passed.Seconds(), true
		}
		for until := spent + processor.Bite(pace, passed, spent); spent < until; spent = cpuTime() - begin {
			work(l.aead, packet)
		}
		time.Sleep(processor.BitePause)
	}
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// costOfPacket estimates the processor time for carrying a packet before any packet has been carried: the
// time to decrypt it, plus wayFactor passes through a socket to a waiting goroutine for the rest.
func costOfPacket(aead cipher.AEAD) (time.Duration, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	to, from := os.NewFile(uintptr(fds[0]), "to"), os.NewFile(uintptr(fds[1]), "from")
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		for b := make([]byte, packetSize); ; {
			if _, err := from.Read(b); err != nil {
				return
			}
			arrived <- struct{}{}
		}
	}()
	defer func() {
		from.Close()
		to.Close()
		for range arrived {
		}
	}()
	packet := make([]byte, packetSize)
	open := timeOf(func() { work(aead, packet) })
	pass := timeOf(func() {
		if _, err := to.Write(packet); err == nil {
			<-arrived
		}
	})
	return open + wayFactor*pass, nil
}

// fastest returns the AEAD that TLS chooses: AES-GCM if the processor has instructions for it, otherwise
// ChaCha20-Poly1305.
func fastest() (cipher.AEAD, error) {
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	chacha, err := chacha20poly1305.New(make([]byte, chacha20poly1305.KeySize))
	if err != nil {
		return nil, err
	}
	packet := make([]byte, packetSize)
	if timeOf(func() { work(gcm, packet) }) < timeOf(func() { work(chacha, packet) }) {
		return gcm, nil
	}
	return chacha, nil
}

// work is the least work for a packet. Encrypting takes as long as decrypting.
func work(aead cipher.AEAD, packet []byte) {
	var nonce [12]byte // the nonce size of both AEADs
	aead.Seal(packet[:0], nonce[:], packet[:packetSize-aead.Overhead()], nil)
}

// timeOf returns the processor time of f with warm caches and without disturbance: the minimum of several
// batches within measureTime.
func timeOf(f func()) time.Duration {
	const batch = 4
	f()
	best, begin, end := time.Hour, cpuTime(), time.Now().Add(20*measureTime)
	for batches := 1; ; batches++ {
		before := cpuTime()
		for range batch {
			f()
		}
		now := cpuTime()
		best = min(best, now-before)
		if batches >= minBatches && (now-begin >= measureTime || time.Now().After(end)) {
			return best / batch
		}
	}
}

// sampler returns a function that reads the traffic counters of the relay and of the uplinks, and advances
// the coarse clock.
func (r *Relay) sampler() func() processor.Sample {
	var counters complaint
	return func() processor.Sample {
		r.hand.Add(1)
		r.mu.Lock()
		uplinks := r.world.Uplinks
		r.mu.Unlock()
		path, err := r.meter.Read(uplinks)
		counters.about(r.logger, "cannot read the devices' counters", err)
		return processor.Sample{
			Carried: r.carried.bytes.ToStream.Load() + r.carried.bytes.FromStream.Load(),
			Other:   r.direct.bytes.ToStream.Load() + r.direct.bytes.FromStream.Load(),
			Idle:    r.held.Load() == 0 && r.flows.now() == 0,
			Path:    path,
		}
	}
}
