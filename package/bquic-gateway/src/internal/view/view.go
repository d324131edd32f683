// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"bquic/internal/gateway"
	"bquic/internal/processor"
	"bquic/internal/proof"
	"bquic/internal/relay"
	"bquic/internal/status"
	"bquic/internal/system"
	"bquic/internal/tunnel"
)

const (
	maxRows = 10 // rows of a table; the JSON document has all
	maxCell = 80 // characters
)

// A table is drawn only if it has rows.
type table struct {
	head []string
	rows [][]string
}

// A fact is a named line.
type fact struct{ name, text string }

// daemon has the fields common to both roles.
type daemon struct {
	status.Daemon
	Profile string            `json:"profile"` // relay only
	Refused json.RawMessage   `json:"refused"`
	refused map[string]uint64 // gateway only, by reason
}

// Gateway draws a gateway's status at a time. It leaves out missing fields, because the
// daemon may be older or newer than this program.
func Gateway(data json.RawMessage, now time.Time) string {
	var st gateway.Status
	d := read(data, &st)
	return draw("gateway", d, now, append([]fact{
		{"listen", st.Listen},
		{"pin", st.Pin},
		{"warning", st.Warning},
		{"profiles", strings.Join(st.Profiles, ", ")},
		{"connections", fmt.Sprintf("%d QUIC, %d TCP; %d QUIC since the start", st.Live, st.TCP, st.Total)},
		{"requests", fmt.Sprintf("%d; %s sent, %s received", st.Requests, size(st.Sent), size(st.Received))},
		{"refused", d.refusals(st.Tunnels)},
	}, tunnels(&st)...), peers(&st), origins(&st), connections(&st))
}

func tunnels(st *gateway.Status) []fact {
	t := st.Tunnels
	if t == nil {
		return []fact{{"relays", "none: there is no token"}}
	}
	return []fact{
		{"tunnels", fmt.Sprintf("%d of %d now, %d since the start; %s up, %s down", t.Open, t.Places, t.Total, size(t.Up), size(t.Down))},
		{"uplink", word(t.Uplink, "works", "down: relays are told to go elsewhere")},
	}
}

func peers(st *gateway.Status) table {
	t := table{head: []string{"peer", "tunnels", "since the start", "refused", "up", "down"}}
	if st.Tunnels != nil {
		for _, p := range st.Tunnels.Peers {
			t.rows = append(t.rows, []string{p.Name, strconv.Itoa(p.Open), count(p.Total), count(p.Refused), size(p.Up), size(p.Down)})
		}
	}
	return t
}

func origins(st *gateway.Status) table {
	t := table{head: []string{"origin", "state", ""}}
	for _, o := range st.Origins {
		t.rows = append(t.rows, []string{o.URL, word(o.Up, "up", "away"), o.Error})
	}
	return t
}

func connections(st *gateway.Status) table {
	t := table{head: []string{"connection", "profile", "age", "RTT ms", "packets", "lost", "packets/ACK"}}
	for _, c := range st.Connections {
		if s := c.TransportStats; !c.Closed {
			t.rows = append(t.rows, []string{
				c.Remote, c.Profile, age(seconds(c.Since)), ms(s.SmoothedRTT),
				count(s.PacketsSent), count(s.PacketsLost), fmt.Sprintf("%.1f", c.DataPerAck),
			})
		}
	}
	return t
}

// Relay draws a relay's status at a time.
func Relay(data json.RawMessage, now time.Time) string {
	var st relay.Status
	d := read(data, &st)
	state := st.State
	if !st.Since.IsZero() {
		state += " for " + age(now.Sub(st.Since))
	}
	able := st.State == relay.StateUp && st.Taking
	taking := able && st.Proof.Verdict != proof.Spared
	state += word(taking, ", takes new connections", ", new connections go direct")
	if able && !taking {
		state += ": carried ones were slower, or got no answer"
	}
	return draw("relay", d, now, []fact{
		{"gateway", st.Gateway},
		{"state", state},
		{"clients", unseen(st.Unseen)},
		{"last error", st.LastError},
		{"bridged by", strings.Join(st.BridgePorts, ", ")},
		{"processor", processorOf(st.Processor, taking)},
		{"profile", d.Profile},
		{"carried", relayed(st.Carried)},
		{"direct", relayed(st.Direct)},
		{"full", full(&st)},
		{"compared", overall(&st.Proof)},
		{"refused", notCarried(&st)},
		{"UDP", fmt.Sprintf("flows: %d now, %d since the start; datagrams lost: %d", st.UDP.Now, st.UDP.Total, st.UDP.Lost)},
	}, gateways(&st), sessions(&st, now), clients(&st))
}

// notCarried counts what went direct because of the gateway.
func notCarried(st *relay.Status) string {
	text := fmt.Sprintf("%d by the gateway", st.Refused)
	if st.Late > 0 {
		text += fmt.Sprintf(", and %d had no answer from it in time", st.Late)
	}
	if st.Avoided > 0 {
		text += fmt.Sprintf("; targets that it does not reach: %d", st.Avoided)
	}
	return text
}

func full(st *relay.Status) string {
	if n := st.Carried.Now + st.Direct.Now; st.Limit == 0 || n < int64(st.Limit) { // 0: an older daemon
		return ""
	}
	return fmt.Sprintf("all %d places are taken: further connections go direct", st.Limit)
}

func unseen(u *relay.Unseen) string {
	if u == nil {
		return ""
	}
	return "the relay sees none of their connections: " + u.Reason
}

// processorOf describes the measurements and the decision. If the relay takes nothing for another reason, the decision has no effect.
func processorOf(st processor.Status, taking bool) string {
	if st.Takes == "" { // an older daemon
		return ""
	}
	path := "path rate not known yet"
	if st.Path > 0 {
		path = "path " + processor.Rate(st.Path)
	}
	follows := map[string]string{
		"":                     word(taking, "connections are carried", "fast enough"),
		processor.WhyMeasuring: "being measured, so connections go direct",
		processor.WhyBusy:      "busy, so connections go direct",
		processor.WhySlow:      "TCP goes direct",
	}[st.Why]
	may := "all"
	if st.Share > 0 {
		may = fmt.Sprintf("%.0f %%", 100*st.Share)
	}
	return fmt.Sprintf("carries %s, %s: %s; uses %.0f %% of one, may use %s", processor.Rate(st.Carries), path, follows, 100*st.Used, may)
}

func relayed(c relay.Count) string {
	return fmt.Sprintf("%d now, %d since the start; %s up, %s down", c.Now, c.Total, size(c.Up), size(c.Down))
}

func gateways(st *relay.Status) table {
	t := table{head: []string{"gateway", "state", "weight", "streams", ""}}
	for _, g := range st.Gateways {
		t.rows = append(t.rows, []string{g.Address, g.State, strconv.Itoa(g.Weight), strconv.Itoa(g.Streams), g.Error})
	}
	return t
}

func sessions(st *relay.Status, now time.Time) table {
	t := table{head: []string{"session", "state", "age", "streams", "RTT ms", "least", "packets", "lost"}}
	for _, c := range st.Connections {
		t.rows = append(t.rows, []string{
			c.Remote, c.State, age(now.Sub(c.Since)), strconv.Itoa(c.Streams),
			ms(c.RTT), ms(c.Burst.MinRTT), count(c.Burst.PacketsSent), count(c.Burst.PacketsLost),
		})
	}
	return t
}

func clients(st *relay.Status) table {
	t := table{head: []string{"client", "connections", "sent", "received", "directly"}}
	for _, c := range st.Clients {
		t.rows = append(t.rows, []string{c.Address, strconv.Itoa(c.Connections), size(c.Sent), size(c.Received), size(c.Direct)})
	}
	return t
}

// read decodes as much as possible: a field of another type does not affect the others.
func read(data json.RawMessage, st any) *daemon {
	d := new(daemon)
	_ = json.Unmarshal(data, d)
	_ = json.Unmarshal(data, st)
	_ = json.Unmarshal(d.Refused, &d.refused)
	return d
}

func (d *daemon) refusals(t *tunnel.Stats) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(d.refused)) {
		if n := d.refused[reason]; n > 0 && reason != "retry" { // after which the client comes again
			parts = append(parts, fmt.Sprintf("%s %d", reason, n))
		}
	}
	if t != nil && t.Denied > 0 {
		parts = append(parts, fmt.Sprintf("no valid token %d", t.Denied))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// draw composes a status from the daemon's identity, facts and tables.
func draw(role string, d *daemon, now time.Time, facts []fact, tables ...table) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s, up for %s%s\n", role, system.Printable(d.Version), age(seconds(d.Uptime)), word(d.Stopping, ", stopping", ""))
	if r := d.Reload; r != nil {
		facts = append(facts, fact{"reload", age(now.Sub(r.At)) + " ago: " + cmp.Or(r.Error, "in use")})
	}
	for _, f := range facts {
		if f.text != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", f.name, system.Printable(f.text))
		}
	}
	for _, t := range tables {
		t.draw(&b)
	}
	return b.String()
}

func (t table) draw(b *bytes.Buffer) {
	if len(t.rows) == 0 {
		return
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		text := "  "
		for i, cell := range cells {
			if i > 0 {
				text += "\t"
			}
			text += shorten(system.Printable(cell))
		}
		fmt.Fprintln(w, text)
	}
	line(t.head)
	for _, row := range t.rows[:min(len(t.rows), maxRows)] {
		line(row)
	}
	w.Flush()
	if more := len(t.rows) - maxRows; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

func shorten(s string) string {
	if runes := []rune(s); len(runes) > maxCell {
		return string(runes[:maxCell-3]) + "..."
	}
	return s
}

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 1e9) * float64(time.Second))
}

// size formats bytes in units of powers of 1000.
func size(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= 999.5 && unit < 6 {
		f /= 1000
		unit++
	}
	return fmt.Sprintf("%.3g %cB", f, " kMGTPE"[unit])
}

// age formats d in its two largest units.
func age(d time.Duration) string {
	s := max(int64(d/time.Second), 0)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s/3600%24)
}
