// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bquic/internal/news"
	"bquic/internal/system"
	"bquic/internal/upstream"
)

// gateways manages a relay's sessions. An upstream.Lineup decides which sessions
// there should be.
type gateways struct {
	settings *atomic.Pointer[settings]
	clients  *clients
	logger   *slog.Logger
	changed  func() // called when it changes whether or where new connections are carried
	kicked   chan struct{}
	ended    chan attempt

	mu      sync.Mutex // guards the fields below
	set     *settings  // the settings that places were made from
	lineup  *upstream.Lineup
	places  []*place
	former  []*session // sessions of earlier settings, in use until the session of a place is Up
	leaving []*session // retired
	known   map[string]*known
	turn    int
	busy    time.Time // when a client was last busy

	using   string // gateways that carry new connections; "": none
	last    string // the first of them; if there is none, the last one used
	since   time.Time
	problem string // why there is or was no gateway
	news    news.State
}

// A place holds one session with a gateway.
type place struct {
	gateway string
	tier    int
	tried   []netip.AddrPort // addresses that attempts have used, the latest last
	session *session         // nil: none
	renewed time.Time        // when the last attempt to renew the session began
}

// renewAfter is how long a session stays that carries nothing while others with the gateway carry something. A new one has other
// ports, and so perhaps a better path: where flows are spread over several paths, those of all sessions may have got worse.
const renewAfter = time.Minute

// renew returns the places to dial for because their sessions can be replaced at no cost.
func (g *gateways) renew(now time.Time) (places []int) {
	if g.set.Connections == 0 {
		return nil
	}
	carrying := make(map[string]bool)
	for _, s := range g.best() {
		_, _, streams := s.look()
		carrying[s.gateway] = carrying[s.gateway] || streams > 0
	}
	for i, p := range g.places {
		if p.session == nil || !carrying[p.gateway] || now.Sub(p.renewed) < renewAfter || now.Sub(p.session.since) < renewAfter {
			continue
		}
		if state, _, streams := p.session.look(); state == upstream.Up && streams == 0 && g.lineup.Renew(i) {
			p.renewed = now
			places = append(places, i)
		}
	}
	return places
}

// next returns the address that no attempt has used, or the one that was used longest ago. Their order
// says nothing: many DNS servers return another one each time.
func (p *place) next(addrs []netip.AddrPort) netip.AddrPort {
	use := slices.MinFunc(addrs, func(a, b netip.AddrPort) int { return slices.Index(p.tried, a) - slices.Index(p.tried, b) })
	p.tried = append(slices.DeleteFunc(p.tried, func(a netip.AddrPort) bool { return a == use || !slices.Contains(addrs, a) }), use)
	return use
}

// known is what is known about a gateway.
type known struct {
	addresses []netip.Prefix // excluded from being taken
	itself    bool           // one of them is this machine's
	problem   string         // the error of the last attempt to connect or of the last session; "": none
	learned   learned
}

// An attempt is the result of dialling for a place.
type attempt struct {
	place   *place
	session *session
	err     error
}

func newGateways(now *atomic.Pointer[settings], clients *clients, logger *slog.Logger, changed func()) *gateways {
	g := &gateways{
		settings: now,
		clients:  clients,
		logger:   logger,
		changed:  changed,
		kicked:   make(chan struct{}, 1),
		ended:    make(chan attempt),
		known:    make(map[string]*known),
		since:    time.Now(),
	}
	g.arrange(time.Now())
	return g
}

// run manages the sessions until ctx ends, then closes them.
func (g *gateways) run(ctx context.Context) {
	dials, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		g.mu.Lock()
		sessions := g.all()
		g.mu.Unlock()
		for _, s := range sessions {
			s.close()
		}
	}()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		dial, retire, next := g.step(time.Now())
		tick.Reset(system.UntilBeat(next))
		for s, reason := range retire {
			s.retire(reason)
		}
		for p, d := range dial {
			wg.Go(func() {
				s, err := d.dial(dials, p.gateway, p.next) // no other attempt for p is running
				select {
				case g.ended <- attempt{p, s, err}:
				case <-dials.Done():
					if s != nil {
						s.close()
					}
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-g.kicked:
		case a := <-g.ended:
			if s := g.dialled(time.Now(), a); s != nil {
				s.close()
			}
		}
	}
}

// kick makes run take its next step now.
func (g *gateways) kick() { signal(g.kicked) }

// Reasons of sessions that are retired because there is a better one, or because the relay is idle.
const (
	replaced = "replaced"
	idle     = "idle"
)

// step returns the places to dial for, the sessions to retire with the reason, and how often to take a step: while a gateway works, only
// changes of a session's state are urgent, and they come with a kick.
func (g *gateways) step(now time.Time) (dial map[*place]*dialler, retire map[*session]string, often time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	retire = make(map[*session]string)
	leave := func(s *session, reason string) {
		retire[s] = reason
		g.leaving = append(g.leaving, s)
	}
	if g.settings.Load() != g.set {
		g.arrange(now)
		g.former = slices.DeleteFunc(g.former, func(s *session) bool {
			err := g.set.trusts(s.gateway, s.conn.ConnectionState().TLS)
			if err != nil {
				g.of(s.gateway).problem = err.Error()
				leave(s, err.Error())
			}
			return err != nil
		})
	}
	up := g.note(now, leave)
	g.need(now, leave)
	wanted, unwanted := g.lineup.Decide(now)
	for _, i := range unwanted {
		leave(g.places[i].session, replaced)
		g.places[i].session = nil
		g.lineup.Session(now, i, upstream.Closed)
	}
	if up {
		for _, s := range g.former {
			leave(s, replaced)
		}
		g.former = nil
	}
	ended := func(s *session) bool { return s.conn.Context().Err() != nil }
	g.former = slices.DeleteFunc(g.former, ended)
	g.leaving = slices.DeleteFunc(g.leaving, ended)
	g.report(now)

	dial = make(map[*place]*dialler)
	for _, i := range slices.Concat(wanted, g.renew(now)) {
		p := g.places[i]
		dial[p] = &dialler{g.set, g.found, &g.of(p.gateway).learned, g.kick}
	}
	if g.using != "" {
		return dial, retire, upstream.Rest
	}
	return dial, retire, upstream.Interval
}

// note tells the lineup the states of the sessions, and calls leave for those that have ended. It reports whether one is Up.
func (g *gateways) note(now time.Time, leave func(s *session, reason string)) (up bool) {
	var doubtful []string // gateways of sessions that are no longer Up
	for i, p := range g.places {
		state := upstream.Closed
		if p.session != nil {
			var reason string
			if state, reason, _ = p.session.look(); state == upstream.Retired || state == upstream.Closed {
				g.of(p.gateway).problem = reason
				leave(p.session, reason)
				p.session = nil
			}
		}
		if g.lineup.Session(now, i, state) {
			doubtful = append(doubtful, p.gateway)
		}
		up = up || state == upstream.Up
	}
	for _, p := range g.places {
		if p.up() && slices.Contains(doubtful, p.gateway) { // before each client's connection finds out about another session
			p.session.doubt()
		}
	}
	return up
}

// arrange makes the places for the current settings. It keeps sessions that the
// new settings would make in the same way.
func (g *gateways) arrange(now time.Time) {
	old := g.set
	g.set = g.settings.Load()
	if old != nil && old.sameSession(g.set) && slices.Equal(old.Gateways, g.set.Gateways) {
		return
	}
	was := g.places
	g.places = nil
	var tiers []int
	tier := 0
	for i, u := range g.set.Gateways { // sorted by weight, largest first
		if i > 0 && u.Weight != g.set.Gateways[i-1].Weight {
			tier++
		}
		for range cmp.Or(g.set.Connections, MaxConnections) {
			p := &place{gateway: u.Gateway, tier: tier}
			for _, q := range was {
				if q.session != nil && q.gateway == p.gateway && q.session.settings.sameSession(g.set) {
					p.session, q.session = q.session, nil
					break
				}
			}
			g.places = append(g.places, p)
			tiers = append(tiers, tier)
		}
	}
	for _, p := range was {
		if p.session != nil {
			g.former = append(g.former, p.session)
		}
	}
	g.lineup = upstream.NewLineup(now, tiers, rand.Float64)
}

// dialled records the result of an attempt, and returns the session to close, if any.
func (g *gateways) dialled(now time.Time, a attempt) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.places, a.place)
	if i < 0 { // a place of earlier settings
		return a.session
	}
	k := g.of(a.place.gateway)
	if a.err != nil {
		k.problem = why(a.err)
		g.lineup.Failed(now, i)
		return nil
	}
	k.problem = ""
	old := a.place.session
	if old != nil && old.state() == upstream.Up { // it is being renewed, or was only silent for a while
		g.lineup.Dialled(i)
		if _, _, streams := old.look(); streams > 0 || a.place.renewed.Before(old.since) {
			return a.session
		}
	}
	a.place.session = a.session
	g.lineup.Dialled(i)
	if old != nil {
		if state, _, streams := old.look(); state != upstream.Up && streams == 0 {
			return old
		}
		g.former = append(g.former, old) // until the new one is Up
	}
	return nil
}

// all returns all sessions.
func (g *gateways) all() (sessions []*session) {
	for _, p := range g.places {
		if p.session != nil {
			sessions = append(sessions, p.session)
		}
	}
	return slices.Concat(sessions, g.former, g.leaving)
}

// best returns the sessions for new connections, without former ones.
func (g *gateways) best() (up []*session) {
	tier := g.tier(time.Now())
	for _, p := range g.places {
		if p.tier == tier && p.up() {
			up = append(up, p.session)
		}
	}
	return up
}

// tier returns the tier that takes new connections; -1: none.
func (g *gateways) tier(now time.Time) int {
	return g.lineup.Best(now, func(i int) bool { return g.places[i].up() })
}

func (p *place) up() bool { return p.session != nil && p.session.state() == upstream.Up }

// candidates returns the sessions for new connections, with former ones if there are no others.
func (g *gateways) candidates() []*session {
	if up := g.best(); len(up) > 0 {
		return up
	}
	return slices.DeleteFunc(slices.Clone(g.former), func(s *session) bool { return s.state() != upstream.Up })
}

// works reports whether a session takes new connections. Unlike pick, it asks the gateways nothing.
func (g *gateways) works() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.candidates()) > 0
}

// room reports whether a session takes new connections, and its gateway has not just had no place for one, nor is slow: a connection that it
// refuses goes direct a round trip later than one that nobody has asked it for.
func (g *gateways) room() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.candidates(), (*session).free)
}

// addresses returns the resolved addresses of the gateways.
func (g *gateways) addresses(set *settings) (prefixes []netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range set.Gateways {
		if k := g.known[u.Gateway]; k != nil {
			prefixes = append(prefixes, k.addresses...)
		}
	}
	return prefixes
}

// found records a gateway's addresses, before anything is sent to them.
func (g *gateways) found(gateway string, addresses []netip.Prefix) {
	itself := slices.ContainsFunc(addresses, func(p netip.Prefix) bool {
		own, _ := isOwn(p.Addr())
		return own || p.Addr().IsLoopback()
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.of(gateway)
	if itself && !k.itself {
		g.logger.Warn("a gateway is of no use", "gateway", gateway, "reason", itselfReason)
	}
	k.addresses, k.itself = addresses, itself
}

// Reasons why connections go direct although a gateway is Up.
const (
	itselfReason = "it is this router itself: connections gain nothing"
	fullReason   = "it has no place for more connections"
	slowReason   = "its answers come too late"
)

// formerReason comes before why a gateway is used with earlier settings.
const formerReason = "only with the settings before the reload: "

func (g *gateways) of(gateway string) *known {
	k := g.known[gateway]
	if k == nil {
		k = new(known)
		g.known[gateway] = k
	}
	return k
}

// report logs which gateways are used from now on or, if there is none, the reason.
func (g *gateways) report(now time.Time) {
	using := strings.Join(g.used(), " ")
	if (using == "") != (g.using == "") || using != "" && using != g.using {
		g.since = now
	}
	changed := using != g.using
	if g.using = using; using != "" {
		g.last, _, _ = strings.Cut(using, " ")
		if more, tell := g.news.Is(using, now); tell {
			g.logger.Info("gateway reached", append([]any{"gateway", using}, more...)...)
		}
	} else if problem := g.trouble(); problem != "" {
		g.problem = problem
		if more, tell := g.news.Is("none: "+problem, now); tell {
			g.logger.Warn("no gateway answers: connections go direct", append([]any{"gateways", g.set.addresses(), "reason", problem}, more...)...)
		}
	}
	if changed {
		g.changed()
	}
}

// used returns the gateways that carry new connections.
func (g *gateways) used() (gateways []string) {
	for _, s := range g.candidates() {
		gateways = append(gateways, s.gateway)
	}
	return slices.Compact(gateways)
}

// trouble returns the error of the most preferred gateway that has one.
func (g *gateways) trouble() string {
	for _, u := range g.set.Gateways {
		if st := g.gateway(u); st.Error != "" {
			return st.Error
		}
	}
	return ""
}
