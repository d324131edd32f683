// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/proof"
	"bquic/internal/tunnel"
)

const (
	// stateFile is in Config.StateDir.
	stateFile = "proof"
	// lookAtProof is how often it is seen whether connections are to go another way, keepProof
	// how often what is known is written: flash lasts for some 100,000 writes.
	lookAtProof = time.Minute
	keepProof   = time.Hour
)

// A comparison has carried connections compared with direct ones: it is a proof.Proof's clock, its dice and its file.
type comparison struct {
	logger *slog.Logger
	file   string // "": none

	mu       sync.Mutex
	proof    *proof.Proof
	sessions proof.Sessions
	changed  bool // since it was written
}

func newComparison(s *settings, logger *slog.Logger) *comparison {
	c := &comparison{logger: logger, proof: proof.New(s.proof())}
	if s.StateDir != "" {
		c.file = filepath.Join(s.StateDir, stateFile)
	}
	return c
}

func (s *settings) proof() proof.Config {
	return proof.Config{Share: float64(s.ControlShare) / 100, Auto: s.Auto}
}

func (c *comparison) set(s *settings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proof.Set(s.proof())
}

// join returns the session of a connection that is about to come.
func (c *comparison) join(now time.Time, client, server netip.Addr) *proof.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age(now)
	return c.sessions.Join(now, client, server, func() proof.Ticket { return c.proof.Draw(now, client, rand.Uint32()) })
}

// age is called with mu held.
func (c *comparison) age(now time.Time) {
	for _, s := range c.sessions.Age(now) {
		c.proof.RecordSession(s)
		c.changed = true
	}
}

// begin returns a connection's part, which has come.
func (c *comparison) begin(s *proof.Session, hand *atomic.Uint32) (of comparing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.Measured() {
		return of
	}
	of.session, of.first = s, s.Open()
	of.timing = tunnel.NewTiming(hand, time.Now(), func(from, to time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.Waited(from, to)
	})
	return of
}

// end notes how a connection has ended; known: that its outcome counts.
func (c *comparison) end(of *comparing, o proof.Outcome, f proof.Flow, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known && of.first {
		c.proof.Record(of.session.Ticket(), o)
		c.changed = true
	}
	if of.session.Close(f) {
		c.proof.RecordSession(of.session)
		c.changed = true
	}
}

func (c *comparison) report() proof.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proof.Report(time.Now())
}

// run restores what is known, and keeps it, until ctx ends.
func (c *comparison) run(ctx context.Context) {
	if err := c.restore(); err != nil {
		c.logger.Warn("the comparison with direct connections begins anew", "error", err)
	}
	c.look()
	tick := time.NewTicker(lookAtProof)
	defer tick.Stop()
	kept := time.Now()
	for {
		select {
		case <-ctx.Done():
			c.keep()
			return
		case <-tick.C:
		}
		c.look()
		if time.Since(kept) >= keepProof {
			kept = time.Now()
			c.keep()
		}
	}
}

func (c *comparison) look() {
	c.mu.Lock()
	c.age(time.Now())
	turned := c.proof.Tick(time.Now())
	report := proof.Report{}
	if turned {
		report = c.proof.Report(time.Now())
	}
	c.mu.Unlock()
	switch {
	case turned && report.Verdict == proof.Spared:
		c.logger.Warn("carried connections are slower: new ones go direct", "carried", report.Overall.Carried, "direct", report.Overall.Direct)
	case turned:
		c.logger.Info("it is no longer sure that carried connections are slower: new ones are carried")
	}
}

func (c *comparison) restore() error {
	if c.file == "" {
		return nil
	}
	// A pipe that somebody has put there would have no end.
	f, err := os.OpenFile(c.file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, proof.MaxFile+1))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.proof.Restore(data, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", c.file, err)
	}
	return nil
}

// keep writes what is known, if it is something new.
func (c *comparison) keep() {
	c.mu.Lock()
	if !c.changed || c.file == "" {
		c.mu.Unlock()
		return
	}
	data := c.proof.Append(nil)
	c.changed = false
	c.mu.Unlock()
	if err := replace(c.file, data); err != nil {
		c.logger.Warn("the comparison with direct connections is not kept", "error", err)
	}
}

// replace writes a file of this process's user's: readers find the old one or the new one, also after a power cut.
func replace(name string, data []byte) (err error) {
	made := name + ".new"
	// On OpenWrt the init script has made it.
	if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(made, name)
	}
	if err != nil {
		os.Remove(made)
	}
	return err
}

// draw decides on a new connection that can be carried, unless its session is drawn already.
func (r *Relay) draw(p *divert.Packet, now time.Time) *proof.Session {
	// To what only gateways reach there is no direct way.
	if p.Bridge != 0 && r.now.Load().Bridge == BridgeAll {
		return nil
	}
	return r.comparison.join(now, p.Client.Addr(), p.Target.Addr())
}

// comparing is a connection's part in the comparison.
type comparing struct {
	session *proof.Session
	first   bool           // of its session: drawn with it, the others would say the same again
	timing  *tunnel.Timing // nil: it has none
	failed  bool           // its target was not reached
}

// asked notes what was read before the splice.
func (c *comparing) asked(e *early) {
	if c.timing != nil && !e.at.IsZero() {
		c.timing.AskedAt(e.at)
	}
}

// compared notes how a connection has ended. Its outcome does not count if that is because the relay ends, or its
// client has gone without a word.
func (r *Relay) compared(ctx context.Context, c *comparing) {
	bytes, first, wait, ok := c.timing.Result()
	known := ctx.Err() == nil && ok && (bytes > 0 || c.failed || c.timing.Asked())
	n := c.timing.Counts()
	r.comparison.end(c, proof.Outcome{Bytes: bytes, First: first, Wait: wait}, proof.Flow(n), known)
}
