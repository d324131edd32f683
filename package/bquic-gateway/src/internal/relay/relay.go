// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"bquic/internal/divert"
	"bquic/internal/processor"
	"bquic/internal/upstream"
)

// lookInterval is how often the routes are read for the devices that lead to the world.
const lookInterval = time.Second

// A Relay carries connections. Create it with New.
type Relay struct {
	now    atomic.Pointer[settings] // for new sessions and connections
	logger *slog.Logger
	ready  chan struct{}
	kicked chan struct{} // something changed that decides on taking connections

	gateways *gateways
	load     *load

	expected expected
	held     atomic.Int64 // accepted and not ended
	carried  counter
	direct   counter
	refused  atomic.Uint64
	clients  clients
	flows    flows

	mu     sync.Mutex
	taking bool
	world  []string // devices that lead there, as control has found them
}

// New checks the configuration. Nothing is opened or changed before Run.
func New(cfg Config, logger *slog.Logger) (*Relay, error) {
	set, err := newSettings(cfg)
	if err != nil {
		return nil, err
	}
	load, err := newLoad(set.share(), logger)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		logger: logger,
		load:   load,
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
	r.load.setShare(set.share())
	r.kick()
	return nil
}

// Ready is closed when the relay could take connections. Whether it does,
// which depends on the gateway, tells Status.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run relays until ctx ends. It removes all that it added to nftables and to the
// routing; if the process is killed, the kernel does.
func (r *Relay) Run(ctx context.Context) error {
	// Connections live a little longer than ctx: none may come any more when
	// they are reset.
	conns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	set := r.now.Load()
	listeners, err := listen(ctx, set.Mode, set.Port)
	if err != nil {
		cancel()
		return err
	}
	for _, l := range listeners {
		context.AfterFunc(conns, func() { l.Close() })
	}
	var wg sync.WaitGroup
	d, err := divert.Open(set.Mode)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		wg.Wait() // clients see the resets as the targets' while there is still NAT
		if err := d.Close(); err != nil {
			r.logger.Error("cannot remove all that was added to the kernel", "error", err)
		}
	}()
	r.flows.diverter = d
	if err := d.Apply(r.rules(nil)); err != nil {
		return err
	}
	meter, err := divert.OpenMeter()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	wg.Go(func() {
		if err := d.Run(conns, func(p *divert.Packet) divert.Verdict { return r.decide(conns, p, &wg) }); err != nil {
			failed <- err
		}
	})
	for _, l := range listeners {
		wg.Go(func() { r.accept(conns, l, &wg) })
	}
	wg.Go(func() { r.gateways.run(conns) })
	wg.Go(func() {
		defer meter.Close()
		r.load.run(conns, r.sampler(meter), r.kick)
	})
	close(r.ready)
	err = r.control(ctx, d, failed)
	if aerr := d.Apply(r.rules(nil)); err == nil {
		err = aerr
	}
	return err
}

// kick makes control look now.
func (r *Relay) kick() {
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

// rules are those of the kernel with new connections leaving by uplinks taken; without
// uplinks, none are.
func (r *Relay) rules(uplinks []string) divert.Rules {
	set := r.now.Load()
	return divert.Rules{
		Mode:    set.Mode,
		Port:    set.Port,
		Node:    divert.NodeAddresses(set.Interfaces),
		Clients: set.Interfaces,
		Uplinks: uplinks,
		Exclude: slices.Concat(never, set.Exclude, r.gateways.addresses(set)),
		TCP:     r.load.takes() == processor.All,
		NotTCP:  set.ExcludePorts,
		UDP:     set.UDPPorts,
	}
}

// DryRun returns what Run would add to the kernel's rules while a gateway answers, and
// the processor is as fast as the path. The
// error says which gateway's name has no address: that would be added, too.
func (r *Relay) DryRun(ctx context.Context) (rules string, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	set := r.now.Load()
	d := &dialler{settings: set, found: r.gateways.found}
	for _, u := range set.Gateways {
		if _, rerr := d.resolve(ctx, u.Gateway); rerr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", u.Gateway, rerr))
		}
	}
	planned := r.rules(r.uplinks())
	planned.TCP = true
	return planned.String(), err
}

// uplinks are the devices that what is taken would leave by.
func (r *Relay) uplinks() []string {
	set := r.now.Load()
	if len(set.Uplinks) > 0 {
		return set.Uplinks
	}
	var gateways []netip.Addr
	for _, p := range r.gateways.addresses(set) {
		gateways = append(gateways, p.Addr())
	}
	names, err := divert.Uplinks(gateways)
	if err != nil {
		r.logger.Error("cannot read the routes", "error", err)
	}
	return names
}

// control watches the sessions. While none of them is healthy, the kernel is told to
// take nothing.
func (r *Relay) control(ctx context.Context, d *divert.Diverter, failed <-chan error) error {
	tick := time.NewTicker(upstream.Interval)
	defer tick.Stop()
	failure := ""
	var uplinks []string
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		case <-r.kicked:
		}
		take := r.gateways.pick() != nil
		if take && time.Since(looked) >= lookInterval {
			looked = time.Now()
			uplinks = r.uplinks()
			r.mu.Lock()
			r.world = uplinks
			r.mu.Unlock()
		}
		leaving := uplinks
		if !take {
			leaving = nil
		}
		rules := r.rules(leaving)
		if err := d.Apply(rules); err != nil {
			if err.Error() != failure {
				failure = err.Error()
				r.logger.Error("cannot change the kernel's rules", "error", err)
			}
			continue
		}
		failure = ""
		r.mu.Lock()
		r.taking = take && rules.TCP && len(uplinks) > 0
		r.mu.Unlock()
	}
}
