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
	"bquic/internal/processor"
	"bquic/internal/proof"
	"bquic/internal/system"
	"bquic/internal/tunnel"
)

const (
	// StateFile is the name of the file in Config.StateDir.
	StateFile = "proof"
	// lookAtProof is how often the relay checks whether connections should be carried or go direct. keepProof is how
	// often it writes the state file: flash lasts for about 100,000 writes.
	lookAtProof = time.Minute
	keepProof   = time.Hour
	// clockSet is by how much the clock must be set for the file to be read again. Routers boot with a clock that is years ahead, or behind.
	clockSet = time.Hour
	// A connection that was drawn to go direct and has not reached its server within reachTime is carried. If maxLost in a row, to
	// different servers, have not, and a gateway reached these, this node seems to have no way out of its own: an exit may translate only
	// clients' addresses. None is then drawn for minPause, and twice as long each further time.
	maxLost   = 6
	reachTime = 10 * time.Second
)

// A comparison compares carried connections with direct ones. It provides a proof.Proof with a clock, random numbers
// and a file.
type comparison struct {
	logger  *slog.Logger
	file    string     // "": none
	writing sync.Mutex // of the file

	mu         sync.Mutex
	proof      *proof.Proof
	sessions   proof.Sessions
	uncompared uint32    // sessions that began while the path was full
	own        [2]ownWay // of IPv4 and IPv6
	visits     map[pair]visit
	changed    bool // changed since the last write
}

// A visit is the connections that a client has open to a server.
type visit struct {
	arm  proof.Arm // of the first one
	open int
}

// visitOf returns the key of a visit, without ports.
func visitOf(client, server netip.Addr) pair {
	return pair{netip.AddrPortFrom(client, 0), netip.AddrPortFrom(server, 0)}
}

// ownWay says whether connections that were drawn to go direct reach their servers.
type ownWay struct {
	arrivals
	lost netip.Addr // the server that the last one has not reached
}

func newComparison(s *settings, logger *slog.Logger) *comparison {
	c := &comparison{logger: logger, proof: proof.New(s.proof())}
	if s.StateDir != "" {
		c.file = filepath.Join(s.StateDir, StateFile)
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

// join returns the session of a connection whose SYN has been taken. filled says that the node's clients fill the path. What is carried
// shares a few sessions there, and a direct connection would get as much of the path as one of them: less would be left for all others together, and
// the comparison would say that carrying makes them slow, which it does not.
//
// What is not the web goes the same way as what the client has open at the server: FTP needs its connections to come from one address.
func (c *comparison) join(now time.Time, client netip.Addr, target netip.AddrPort, filled bool) *proof.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age(now)
	server := target.Addr()
	return c.sessions.Join(now, client, server, func() proof.Ticket {
		if v, ok := c.visits[visitOf(client, server)]; ok && target.Port() != 80 && target.Port() != 443 {
			t := proof.Uncompared
			t.Arm = v.arm
			return t
		}
		t := c.proof.Draw(now, client, rand.Uint32())
		switch {
		case t.Measured && now.Before(c.ownWay(server).until): // the carried ones of now, without direct ones, would count against those of before
			if c.proof.Spared() {
				return proof.Ticket{Arm: proof.Forwarded}
			}
			return proof.Uncompared
		case filled && t.Measured && !c.proof.Spared():
			c.uncompared++
			return proof.Uncompared
		}
		return t
	})
}

func (c *comparison) ownWay(server netip.Addr) *ownWay {
	if server.Is4() {
		return &c.own[0]
	}
	return &c.own[1]
}

// enter records that a client's connection has reached its server, and by which way. The caller must call leave at its end.
func (c *comparison) enter(client, server netip.Addr, arm proof.Arm) (leave func()) {
	key := visitOf(client, server)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.visits == nil {
		c.visits = make(map[pair]visit)
	}
	v := c.visits[key]
	if v.open == 0 {
		v.arm = arm
	}
	v.open++
	c.visits[key] = v
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		v := c.visits[key]
		if v.open--; v.open == 0 {
			delete(c.visits, key)
			return
		}
		c.visits[key] = v
	}
}

// reached records whether a connection that was drawn to go direct has reached its server. If not, a gateway has.
func (c *comparison) reached(server netip.Addr, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.ownWay(server)
	if ok {
		*own = ownWay{}
		return
	}
	if own.lost == server { // its clients may try again and again
		return
	}
	own.lost = server
	own.missing++
	if own.pauses(time.Now(), maxLost) && own.pause == minPause {
		c.logger.Warn("connections that this node makes itself reach no server: clients' are not drawn to go direct", "ipv6", server.Is6())
	}
}

// age records the sessions that have ended. The caller holds mu.
func (c *comparison) age(now time.Time) {
	for _, s := range c.sessions.Age(now) {
		c.proof.RecordSession(s)
		c.changed = true
	}
}

// begin returns the part in the comparison of a connection that has been accepted.
func (c *comparison) begin(s *proof.Session, hand *atomic.Uint32) (of comparing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.Measured() {
		return of
	}
	timing := tunnel.NewTiming(hand, time.Now(), func(from, to time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.Waited(from, to)
	})
	of.session, of.timing = s, timing
	of.first = s.Open(func() time.Duration { return time.Duration(timing.Idle()) * processor.Interval })
	return of
}

// end records how a connection has ended. known says that its outcome counts.
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
	r := c.proof.Report(time.Now())
	r.Uncompared = c.uncompared
	return r
}

// run restores the state, then checks and writes it periodically until ctx ends.
func (c *comparison) run(ctx context.Context) {
	c.restore()
	c.look()
	tick := time.NewTicker(lookAtProof)
	defer tick.Stop()
	kept := time.Now()
	before := kept
	for {
		select {
		case <-ctx.Done():
			c.keep()
			return
		case <-tick.C:
		}
		now := time.Now()
		c.follow(now.Round(0).Sub(before.Round(0)) - now.Sub(before))
		before = now
		c.look()
		if now.Sub(kept) >= keepProof {
			kept = now
			c.keep()
		}
	}
}

// follow reads the file again if the clock was set. By a wrong clock, its days were long ago, or to come.
func (c *comparison) follow(set time.Duration) {
	if set.Abs() >= clockSet {
		c.restore()
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
		c.logger.Warn("carried connections are slower, or get no answer: new ones go direct", "carried", report.Overall.Carried, "direct", report.Overall.Direct)
	case turned:
		c.logger.Info("it is no longer certain that carried connections are slower: new ones are carried again")
	}
}

func (c *comparison) restore() {
	if err := c.read(); err != nil {
		c.logger.Warn("the comparison with direct connections starts again from nothing", "error", err)
	}
}

func (c *comparison) read() error {
	if c.file == "" {
		return nil
	}
	// Do not block on a FIFO or follow a link that another user has put there.
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

// keep writes the state if it has changed.
func (c *comparison) keep() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	if !c.changed || c.file == "" {
		c.mu.Unlock()
		return
	}
	data := c.proof.Append(nil)
	c.changed = false
	c.mu.Unlock()
	// On OpenWrt, the init script has made the directory.
	err := os.Mkdir(filepath.Dir(c.file), 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = system.Replace(c.file, data, 0o600, -1)
	}
	if err != nil {
		c.logger.Warn("cannot save the comparison with direct connections", "error", err)
		c.mu.Lock()
		c.changed = true // the next attempt may have room
		c.mu.Unlock()
	}
}

// draw decides whether a new connection is carried or goes direct. A connection of a known session follows the session.
func (r *Relay) draw(p *divert.Packet, now time.Time) *proof.Session {
	if r.stranded(p.Bridge != 0) { // there is no direct route to compare with
		return nil
	}
	return r.comparison.join(now, p.Client.Addr(), p.Target, r.load.fills())
}

// comparing is a connection's part in the comparison.
type comparing struct {
	session *proof.Session
	first   bool           // first connection of its session; the others would only repeat its outcome
	timing  *tunnel.Timing // nil: not compared
	failed  bool           // the target could not be reached
}

// compared records how a connection has ended. Its outcome does not count if the client left without sending anything. If the relay is
// stopping, it has ended the connection itself, and the whole page load does not count.
func (r *Relay) compared(ctx context.Context, c *comparing) {
	if ctx.Err() != nil {
		return
	}
	bytes, first, wait, ok := c.timing.Result()
	known := ok && (bytes > 0 || c.failed || c.timing.Asked())
	n := c.timing.Counts()
	r.comparison.end(c, proof.Outcome{Bytes: bytes, First: first, Wait: wait}, proof.Flow(n), known)
}
