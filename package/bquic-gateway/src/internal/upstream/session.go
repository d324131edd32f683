// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

const (
	// Interval is how often Tick is to be called. A longer time between two
	// ticks counts as this much: the process did not run, and could not have
	// heard anybody.
	Interval = 250 * time.Millisecond

	// While something is carried, the gateway is asked for a sign when nothing
	// was heard of it for AskAfter, and is Silent after SilentAfter without one.
	// An idle session leaves the radios alone.
	AskAfter    = time.Second
	SilentAfter = time.Second
	// CloseAfter is how long a silent gateway may keep what it carries: a mesh
	// that finds another route within it loses nothing.
	CloseAfter = 10 * time.Second

	// A gateway without an uplink is asked whether it is back, at first after
	// MinUplinkPause, then after twice that, up to MaxUplinkPause: as seldom as
	// every second PING of QUIC's keep-alive, which a question makes needless.
	MinUplinkPause = 2 * time.Second
	MaxUplinkPause = 30 * time.Second
)

// Reasons that a Session gives of its own.
const (
	Silence   = "nothing heard of the gateway"
	NoAnswers = "the gateway answers no requests"
)

// A State is what a session is good for.
type State uint8

const (
	// Dialling: the first probe is under way.
	Dialling State = iota
	// Up: takes new connections.
	Up
	// Silent: takes none. What it carries may go on; an answer makes it Up.
	Silent
	// NoUplink: the gateway is there, and reaches nothing. Takes none.
	NoUplink
	// Retired: is never Up again, and ends with the last that it carries.
	Retired
	// Closed: the connection has ended, or is to be closed.
	Closed
)

func (s State) String() string {
	return [...]string{"dialling", "up", "silent", "no uplink", "retired", "closed"}[s]
}

// Do is what an event asks for, as a set.
type Do uint8

const (
	Ping  Do = 1 << iota // ask for an acknowledgement
	Probe                // ask for an answer; to be followed by Answered, Unanswered or Unasked
	Close                // for Reason
)

// A Question is what a gateway can be asked.
type Question uint8

const (
	Carry  Question = iota // a connection of a client
	Uplink                 // a probe
)

// An Answer is what a gateway says, or how it says it.
type Answer uint8

const (
	Fine       Answer = iota // it does, or has reasons that are the target's
	UplinkDown               // it reaches nothing
	Denied                   // it wants nothing to do with this relay
)

// A Session is the state of a session with a gateway. Packets show that the
// path is there; only an answer shows that the gateway works: packets that are
// too large for the path get lost while small ones arrive.
type Session struct {
	state   State
	reason  string
	streams int // carried

	packets uint64    // received
	heard   time.Time // when the last of them was noticed
	ticked  time.Time

	begun time.Time // when the first connection began since something was heard; zero: none has

	asked      bool // for a sign, and there was none yet
	pinged     time.Time
	unanswered time.Duration // since asked, while the process ran and had read all
	starved    time.Duration // in which it had not, since something was heard

	probing bool
	probed  time.Duration // since then, while the process ran
	alive   bool          // heard since then

	pause time.Duration // of NoUplink
	again time.Time     // when it is asked
}

// NewSession returns a session whose probe is under way.
func NewSession(now time.Time) *Session {
	return &Session{heard: now, ticked: now, probing: true}
}

// State is Up exactly when the session takes new connections.
func (s *Session) State() State { return s.state }

// Reason is why the session is not Up.
func (s *Session) Reason() string { return s.reason }

// Streams is the number of connections that are carried, or about to be.
func (s *Session) Streams() int { return s.streams }

// Opened notes that a connection begins, for which the gateway is sent something.
func (s *Session) Opened(now time.Time) {
	s.streams++
	if s.begun.IsZero() {
		s.begun = now
	}
}

// Compared returns what there is to say of the session when a connection is to be
// carried by it or another one. rtt is that of the latest acknowledgement; one that is old is
// asked for anew, for the next connection.
func (s *Session) Compared(now time.Time, rtt time.Duration) (Path, Do) {
	p := Path{Streams: s.streams, RTT: rtt}
	if !s.begun.IsZero() {
		p.Quiet = now.Sub(s.begun)
	}
	return p, s.ask(now)
}

// Ended notes that a connection has ended.
func (s *Session) Ended() Do {
	s.streams--
	if s.streams == 0 && s.state == Retired {
		return s.close(s.reason)
	}
	return 0
}

// Heard takes the number of packets received so far. It is to be called before
// every other event.
func (s *Session) Heard(now time.Time, packets uint64) Do {
	if packets == s.packets {
		return 0
	}
	s.packets, s.heard = packets, now
	s.asked, s.unanswered, s.starved = false, 0, 0
	s.begun = time.Time{}
	s.alive = true
	if s.state == Silent {
		return s.probe()
	}
	return 0
}

// Tick looks whether the gateway is silent. pto is what RFC 9002, section 6.2.1,
// derives from the RTT: repetitions are spaced by it on long paths. starved says that this
// process has waited for the processor: the sign that is waited for may have arrived, so this
// time does not count. It does after CloseAfter: a gateway can be away meanwhile.
func (s *Session) Tick(now time.Time, pto time.Duration, starved bool) (do Do) {
	ran := min(max(now.Sub(s.ticked), 0), Interval)
	s.ticked = now
	if starved && (s.asked || s.probing) && s.starved < CloseAfter {
		s.starved += ran
		ran = 0
	}
	if s.state == Closed {
		return 0
	}
	if s.probing {
		s.probed += ran
	}
	if s.state == Dialling { // the probe decides
		return 0
	}
	if s.asked {
		s.unanswered += ran
		switch {
		case s.unanswered >= CloseAfter:
			return s.close(Silence)
		case s.unanswered >= max(SilentAfter, 3*pto):
			s.silence()
		}
	}
	if s.state == NoUplink && !s.probing && !now.Before(s.again) {
		s.pause = min(2*s.pause, MaxUplinkPause)
		s.again = now.Add(s.pause)
		s.asked, s.pinged = true, now // this wants an acknowledgement, too
		do |= s.probe()
	}
	if s.asked || s.probing || s.streams > 0 || s.state == Silent {
		do |= s.ask(now)
	}
	return do
}

// ask wants a sign of the gateway, if there was none for long.
func (s *Session) ask(now time.Time) Do {
	if now.Sub(s.heard) < AskAfter || now.Sub(s.pinged) < AskAfter {
		return 0
	}
	s.asked, s.pinged = true, now
	return Ping
}

// Answered notes an answer. The reason is for one that is not Fine.
func (s *Session) Answered(now time.Time, q Question, a Answer, reason string) Do {
	if q == Uplink {
		s.probing = false
	}
	switch {
	case s.state == Closed || s.state == Retired:
	case a == Denied && s.state == Dialling:
		return s.close(reason)
	case a == Denied:
		return s.Retire(reason)
	case a == UplinkDown && s.state != NoUplink:
		s.state, s.reason = NoUplink, reason
		s.pause = MinUplinkPause
		s.again = now.Add(s.pause)
	case a == UplinkDown:
		s.reason = reason
	case s.state == NoUplink && q == Carry: // asked before the uplink failed, or for what lies on this side of it
	default:
		s.state, s.reason = Up, ""
	}
	return 0
}

// Unanswered notes that a question got no answer in time.
func (s *Session) Unanswered(q Question) Do {
	if q == Carry {
		switch {
		case s.state != Up && s.state != NoUplink:
			return 0
		case s.asked && s.unanswered >= SilentAfter:
			s.silence()
			return 0
		}
		return s.probe() // a slow target, or a gateway that does not answer at all?
	}
	s.probing = false
	switch {
	case s.state == Closed || s.state == Retired:
	case s.state == Dialling:
		return s.close(Silence)
	case s.probed < SilentAfter: // the answer may wait for this process
		return s.probe()
	case s.alive:
		return s.Retire(NoAnswers)
	}
	return 0
}

// Unasked notes that a probe could not be sent: the gateway allows no more streams.
func (s *Session) Unasked() Do {
	s.probing = false
	if s.state == Dialling {
		return s.close(NoAnswers)
	}
	return 0
}

// Retire has the session take no more connections.
func (s *Session) Retire(reason string) Do {
	if s.state == Closed || s.state == Retired {
		return 0
	}
	s.state, s.reason = Retired, reason
	if s.streams == 0 {
		return s.close(reason)
	}
	// A gateway that was restarted answers this with a stateless reset, which
	// ends what is carried at once; it ignores packets as small as a PING.
	return s.probe()
}

// Gone notes that the connection has ended.
func (s *Session) Gone(reason string) { s.close(reason) }

func (s *Session) silence() {
	if s.state == Up || s.state == NoUplink {
		s.state, s.reason = Silent, Silence
	}
}

func (s *Session) probe() Do {
	if s.probing {
		return 0
	}
	s.probing, s.probed, s.alive = true, 0, false
	return Probe
}

func (s *Session) close(reason string) Do {
	if s.state == Closed {
		return 0
	}
	s.state, s.reason = Closed, reason
	return Close
}
