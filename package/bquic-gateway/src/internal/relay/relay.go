// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bquic/internal/divert"
	"bquic/internal/metrics"
	"bquic/internal/processor"
	"bquic/internal/system"
)

const (
	// lookInterval is how often the relay reads the routes to find the uplinks, if nothing else changes. A mesh may have thousands of
	// routes, and reading them may take a router's processor long: it takes at most one in lookPart of its time.
	lookInterval = time.Second
	lookPart     = 50
	// lingerTimeout is how long a stopping relay waits for its connections. procd and
	// systemd must not kill it earlier (term_timeout, TimeoutStopSec).
	lingerTimeout = 30 * time.Second
	// lingerInterval is how often it checks for them.
	lingerInterval = 50 * time.Millisecond
)

// A Relay carries connections. Create it with New.
type Relay struct {
	now    atomic.Pointer[settings] // for new sessions and connections
	logger *slog.Logger
	ready  chan struct{}
	kicked chan struct{} // wakes control after a change

	gateways   *gateways
	load       *load
	comparison *comparison
	hand       atomic.Uint32 // coarse clock, advanced each processor.Interval

	diverter *divert.Diverter
	meter    *divert.Meter
	expected expected
	avoided  avoided
	seen     atomic.Uint64 // TCP connections that could have been taken
	apart    atomic.Uint64 // TCP connections that could not, because the relay could not make them as the kernel forwards them
	unseen   unseen
	devices  complaint    // that they cannot be read
	ending   atomic.Bool  // no new connections are taken
	held     atomic.Int64 // accepted connections that have not ended
	carried  counter
	direct   counter
	refused  atomic.Uint64
	late     atomic.Uint64 // connections that have waited for the gateway's answer in vain
	clients  clients
	flows    flows

	mu     sync.Mutex
	taking bool
	world  world // as control has last seen it
	blind  *Unseen
}

// A world describes how clients' packets reach other networks.
type world struct {
	node  []netip.Addr
	links []netip.Prefix // of the uplinks
	divert.Network
}

// New checks the configuration. It opens and changes nothing in the system; Run does.
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
		logger:     logger,
		load:       load,
		comparison: newComparison(set, logger),
		ready:      make(chan struct{}),
		kicked:     make(chan struct{}, 1),
	}
	r.now.Store(set)
	r.gateways = newGateways(&r.now, &r.clients, logger, func() {
		r.avoided.clear()
		r.flows.avoided.clear()
		r.kick()
	})
	r.flows.relay = r
	return r, nil
}

// Apply makes cfg the configuration for new connections. It replaces sessions that cfg would
// make in another way. Carried connections continue in the session in which they began. If
// Apply fails, the previous configuration stays in force.
func (r *Relay) Apply(cfg Config) error {
	old, next := r.now.Load(), cfg.withDefaults()
	cfg.Fixed = old.Fixed
	set, err := newSettings(cfg)
	if err != nil {
		return err
	}
	was := old.Options()
	for i, is := range next.Options() {
		if is != was[i] {
			r.logger.Warn("this change needs a restart", "option", "relay."+is[0], "was", was[i][1], "is", is[1])
		}
	}
	if set.sameSession(old) {
		set.tls = old.tls // keeps the cache of resumable sessions
	}
	if r.flows.now() > 0 {
		set.former = slices.DeleteFunc(slices.Concat(old.Interfaces, old.former), func(name string) bool { return slices.Contains(set.Interfaces, name) })
	}
	r.now.Store(set)
	r.load.setShare(set.share())
	r.comparison.set(set)
	r.gateways.kick()
	r.kick()
	return nil
}

// Ready returns a channel that is closed when the relay can take connections. Status tells
// whether it does, which depends on the gateway.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run relays until ctx ends. It then takes no new connections, and returns when the last
// connection has ended, at the latest after lingerTimeout. It removes everything that it added
// to nftables and routing; if the process is killed, the kernel and the routing's guard do so.
func (r *Relay) Run(ctx context.Context) error {
	metrics.LimitMemory(metrics.Machine() / memoryShare)
	// Connections outlive ctx.
	conns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	listeners, err := listen(ctx, r.now.Load())
	if err != nil {
		return err
	}
	for _, l := range listeners {
		context.AfterFunc(conns, func() { l.Close() })
	}
	if r.meter, err = divert.OpenMeter(); err != nil {
		return err
	}
	defer r.meter.Close()
	d, err := divert.Open()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait() // while NAT is in place, clients see resets from their targets' addresses
		if err := d.Close(); err != nil {
			r.logger.Error("cannot remove everything that was added to the kernel", "error", err)
		}
	}()
	r.diverter, r.expected.lost = d, d.Release
	if divert.EarlyDemux() {
		r.logger.Warn("connections hang if their clients use a port twice: set net.ipv4.tcp_early_demux to 0")
	}
	if err := d.Apply(r.rules(world{}, false)); err != nil {
		return err
	}
	failed := make(chan error, 1)
	wg.Go(func() {
		if err := d.Run(conns, func(p *divert.Packet) { r.begin(conns, p, &wg) }); err != nil {
			failed <- err
		}
	})
	for _, l := range listeners {
		wg.Go(func() { r.accept(conns, l, &wg) })
	}
	wg.Go(func() { r.gateways.run(conns) })
	wg.Go(func() { r.comparison.run(conns) })
	wg.Go(func() { r.load.run(conns, r.sampler(), r.kick) })
	close(r.ready)
	err = r.control(ctx, d, failed)
	r.ending.Store(true)
	r.comparison.keep() // a router that restarts does not wait for the connections
	r.mu.Lock()
	w := r.world
	r.mu.Unlock()
	if aerr := d.Apply(r.rules(w, false)); err == nil {
		err = aerr
	}
	if err == nil {
		r.linger()
	}
	return err
}

// linger waits for the relay's connections, which no other process could continue.
func (r *Relay) linger() {
	if n := r.held.Load(); n > 0 {
		r.logger.Info("stopping: nothing new is taken, waiting for connections to end", "connections", n, "at_most", lingerTimeout)
	}
	end := time.NewTimer(lingerTimeout)
	defer end.Stop()
	tick := time.NewTicker(lingerInterval)
	defer tick.Stop()
	for r.held.Load() > 0 || r.expected.len(time.Now()) > 0 || r.flows.asks() {
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

// kick makes control check now.
func (r *Relay) kick() { signal(r.kicked) }

// signal wakes the goroutine that waits for c, if it is not awake.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// rules returns the kernel's rules for a world. take says whether new connections are taken. It is called every second and after each
// change, so it asks the kernel nothing.
func (r *Relay) rules(w world, take bool) divert.Rules {
	set := r.now.Load()
	rules := divert.Rules{
		Mode:    set.Mode,
		Port:    set.Port,
		Node:    w.node,
		Clients: w.Clients,
		Exclude: slices.Concat(never, set.Exclude, r.gateways.addresses(set), w.links),
		TCP:     r.load.takes() == processor.All,
		NotTCP:  set.ExcludePorts,
		UDP:     set.UDPPorts,
		Bridged: set.Bridge != BridgeOff,
	}
	if len(rules.Clients) == 0 {
		rules.Clients = set.Interfaces
	}
	if len(set.UDPPorts) > 0 || r.flows.now() > 0 {
		rules.Flows = slices.Concat(rules.Clients, set.former)
	}
	if !take {
		return rules
	}
	rules.Uplinks = w.Uplinks
	if rules.Bridged {
		rules.Bridges = w.Ports
	}
	return rules
}

// DryRun returns the rules that Run would add to the kernel while a gateway answers and the
// processor is as fast as the path. The error names the gateways that cannot be resolved,
// whose addresses are missing from the rules.
func (r *Relay) DryRun(ctx context.Context) (rules string, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	set := r.now.Load()
	d := &dialler{settings: set, found: r.gateways.found}
	waiting := time.AfterFunc(answerTimeout/3, func() {
		r.logger.Info("waiting for DNS, for the addresses of the gateways", "at_most", handshakeTimeout)
	})
	defer waiting.Stop()
	for _, u := range set.Gateways {
		if _, rerr := d.resolve(ctx, u.Gateway); rerr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", u.Gateway, rerr))
		}
	}
	planned := r.rules(r.look(), true)
	planned.TCP = true
	return planned.String(), err
}

// look returns how clients' packets currently reach other networks.
func (r *Relay) look() (w world) {
	set := r.now.Load()
	var gateways []netip.Addr
	for _, p := range r.gateways.addresses(set) {
		gateways = append(gateways, p.Addr())
	}
	var err error
	w.Network, err = divert.Look(set.Interfaces, set.Uplinks, gateways)
	r.devices.about(r.logger, "cannot read the devices and routes", err)
	w.links = divert.Links(w.Uplinks)
	w.node = divert.NodeAddresses(w.Clients)
	if set.Bridge != BridgeOff && len(w.Ports) > 0 {
		// A bridge with clients may have no address of its own (Gluon's br-client has no
		// IPv4 address).
		w.node = append(w.node, divert.NodeAddresses(divert.Devices())...)
	}
	return w
}

// control keeps the kernel's rules up to date. While no session is Up, the kernel takes nothing.
func (r *Relay) control(ctx context.Context, d *divert.Diverter, failed <-chan error) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var change complaint
	bridgeless := false
	var w world
	var next time.Time // when to look again
	for {
		tick.Reset(system.UntilBeat(lookInterval))
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		case <-r.kicked:
		}
		take, now := r.gateways.works(), time.Now()
		overtaken := d.Precede()
		r.flows.leave()
		if !take {
			next = now
		} else if !now.Before(next) {
			before := cpuTime()
			w = r.look()
			next = now.Add(lookPart * (cpuTime() - before))
			r.mu.Lock()
			r.world = w
			taking := r.taking
			r.mu.Unlock()
			r.watch(&w, taking)
		}
		rules := r.rules(w, take)
		err := errors.Join(d.Apply(rules), overtaken)
		change.about(r.logger, "cannot change the kernel's rules", err)
		problem := d.BridgeProblem()
		if problem != nil && !bridgeless {
			r.logger.Warn("connections that are only bridged through this node are not taken", "error", problem)
		}
		bridgeless = problem != nil
		r.mu.Lock()
		if err == nil { // else the previous rules hold, and decide lets the rest pass
			r.taking = len(rules.Uplinks) > 0 || len(rules.Bridges) > 0 && !bridgeless
		}
		r.taking = r.taking && take && rules.TCP
		r.mu.Unlock()
	}
}
