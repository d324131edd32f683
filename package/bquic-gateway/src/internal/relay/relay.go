// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"bquic/internal/upstream"
)

// A Relay carries connections. Create it with New.
type Relay struct {
	now    atomic.Pointer[settings] // for new sessions and connections
	logger *slog.Logger
	ready  chan struct{}
	kicked chan struct{} // something changed that decides on taking connections

	gateways *gateways

	held    atomic.Int64 // accepted and not ended
	carried counter
	direct  counter
	refused atomic.Uint64
	clients clients
	flows   flows

	mu     sync.Mutex
	taking bool
}

// New checks the configuration. Nothing is opened or changed before Run.
func New(cfg Config, logger *slog.Logger) (*Relay, error) {
	set, err := newSettings(cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		logger: logger,
		ready:  make(chan struct{}),
		kicked: make(chan struct{}, 1),
	}
	r.now.Store(set)
	r.gateways = newGateways(&r.now, logger, r.kick)
	r.flows.relay = r
	return r, nil
}

// Apply makes cfg the configuration of what is new from now on: connections, and
// sessions where they would be others. What is carried goes on, in the session
// that it began in. An error leaves everything as it is.
func (r *Relay) Apply(cfg Config) error {
	set, err := newSettings(cfg)
	if err != nil {
		return err
	}
	old := r.now.Load()
	for _, o := range []struct{ name, was, is string }{
		{"mode", old.Mode, set.Mode},
		{"port", strconv.Itoa(old.Port), strconv.Itoa(set.Port)},
		{"connections", strconv.Itoa(old.Connections), strconv.Itoa(set.Connections)},
	} {
		if o.was != o.is {
			r.logger.Warn("this change needs a restart", "option", "relay."+o.name, "was", o.was, "is", o.is)
		}
	}
	set.Mode, set.Port, set.Connections = old.Mode, old.Port, old.Connections
	if set.sameSession(old) {
		set.tls = old.tls // with the sessions that can be resumed
	}
	r.now.Store(set)
	r.kick()
	return nil
}

// Ready is closed when the relay could take connections. Whether it does,
// which depends on the gateway, tells Status.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run relays until ctx ends. It removes all that it added to nftables and to
// the routing; what a killed one left, the next Run removes first.
func (r *Relay) Run(ctx context.Context) error {
	// Connections live a little longer than ctx: none may come any more when
	// they are reset.
	conns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	set := r.now.Load()
	c := &capture{mode: set.Mode, port: set.Port, interfaces: set.Interfaces, exclude: set.Exclude, ports: set.ExcludePorts, udp: set.UDPPorts}
	listeners, err := c.listen(ctx)
	if err != nil {
		cancel()
		return err
	}
	datagrams, err := listenUDP(ctx, set.Port)
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		cancel()
		return err
	}
	for _, l := range listeners {
		context.AfterFunc(conns, func() { l.Close() })
	}
	for _, l := range datagrams {
		context.AfterFunc(conns, func() { l.Close() })
	}
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		if err := removeTable(); err != nil {
			r.logger.Error("cannot remove the nftables table", "error", err)
		}
		removeRoutes()
	}()

	removeRoutes() // of a relay that was killed
	if err := c.addRoutes(); err != nil {
		return err
	}
	table := new(guard)
	if err := table.apply(c.script()); err != nil {
		return err
	}
	for _, l := range datagrams {
		wg.Go(func() { r.flows.read(conns, l, c.port, &wg) })
	}
	for _, l := range listeners {
		wg.Go(func() { r.accept(conns, l, c, &wg) })
	}
	wg.Go(func() { r.gateways.run(conns) })
	close(r.ready)
	r.control(ctx, c, table)
	c.take = false
	return nft(c.script())
}

// kick makes control look now.
func (r *Relay) kick() {
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

// control takes new connections only while a gateway carries them and the limit
// is not reached: else the kernel forwards them.
func (r *Relay) control(ctx context.Context, c *capture, table *guard) {
	tick := time.NewTicker(upstream.Interval)
	defer tick.Stop()
	applied := c.script()
	failure := ""
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			if now.Sub(looked) >= guardInterval {
				looked = now
				if applied != "" && !table.intact() {
					r.logger.Warn("the nftables table was changed by others: it is made again")
					applied = ""
				}
			}
		case <-r.kicked:
		}
		up := r.gateways.pick() != nil
		set := r.now.Load()
		limit := int64(set.Limit)
		if c.take { // hysteresis of a tenth
			c.take = up && r.held.Load() < limit
		} else {
			c.take = up && r.held.Load() < limit-limit/10
		}
		c.interfaces, c.ports, c.udp = set.Interfaces, set.ExcludePorts, set.UDPPorts
		c.exclude = append(slices.Clone(set.Exclude), r.gateways.addresses(set)...)
		script := c.script()
		if script == applied {
			continue
		}
		err := c.addRoutes()
		if err == nil {
			err = table.apply(script)
		}
		if err != nil {
			if err.Error() != failure {
				failure = err.Error()
				r.logger.Error("cannot change the nftables table", "error", err)
			}
			continue
		}
		applied, failure = script, ""
		r.mu.Lock()
		r.taking = c.take
		r.mu.Unlock()
	}
}
