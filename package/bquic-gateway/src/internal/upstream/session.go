// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

const (
	// Interval is how often Tick must be called. A longer time between two ticks counts as
	// one Interval: the process did not run, and could not have received a packet.
	Interval = 250 * time.Millisecond
	// Rest is how often instead while the session is Resting.
	Rest = time.Second

	// While the session carries connections, it sends a PING when no packet has arrived for
	// AskAfter. Without an acknowledgement, it is Silent after SilentAfter. An idle session
	// sends none, to spare the radios, as long as the gateway acknowledges QUIC's own PINGs:
	// it must send one twice in IdleAfter.
	AskAfter    = time.Second
	SilentAfter = time.Second
	IdleAfter   = 30 * time.Second
	// CloseAfter is how long a silent gateway keeps its connections once the relay knows that the mesh
	// works without it. Until then, they wait for the path, at most as long as QUIC's idle timeout.
	CloseAfter = 10 * time.Second

	// A gateway without an uplink is probed until the uplink is back, at first after
	// minUplinkPause, with pauses that double up to maxUplinkPause. That is as seldom as
	// every second keep-alive PING of QUIC, which a probe replaces.
	minUplinkPause = 2 * time.Second
	maxUplinkPause = 30 * time.Second
	// lostAfter is how long the uplink must be down until connections that wait for it are Lost if they could do without the gateway. A gateway
	// that stops says the same of its uplink; it has ended all connections by then.
	lostAfter = 30 * time.Second
)

// Reasons that a Session itself gives for its state.
const (
	Silence   = "nothing heard from the gateway"
	NoAnswers = "the gateway does not answer requests"
)

// A State says whether a session takes new connections.
type State uint8

const (
	// Dialling: the first probe has not been answered yet.
	Dialling State = iota
	// Up: takes new connections.
	Up
	// Silent: takes no new connections. Existing ones may continue; an answer makes it Up.
	Silent
	// NoUplink: the gateway answers, but does not reach the Internet. Takes no new connections.
	NoUplink
	// Retired: never becomes Up again, and closes with its last connection.
	Retired
	// Closed: the QUIC connection has ended or must be closed.
	Closed
)

func (s State) String() string {
	return [...]string{"dialling", "up", "silent", "no uplink", "retired", "closed"}[s]
}

// Do is the set of actions that an event requires.
type Do uint8

const (
	Ping  Do = 1 << iota // send a PING, to get an acknowledgement
	Probe                // send a probe, then call Answered, Unanswered or Unasked
	Close                // close the connection for Reason
	Reach                // find out whether what is carried could be reached without the gateway, then call Reached
)

// A Question is a request to a gateway.
type Question uint8

const (
	Carry  Question = iota // carry a client's connection
	Uplink                 // a probe: does the uplink work?
)

// An Answer is a gateway's response to a Question.
type Answer uint8

const (
	Fine       Answer = iota // yes, or a refusal because of the target
	UplinkDown               // the gateway does not reach the Internet
	Denied                   // the gateway refuses this relay
)

// A Session is the state of a session with a gateway. Packets prove that the path works. Only
// an answer proves that the gateway works, because packets that are too large for the path
// can get lost while small ones arrive.
type Session struct {
	state   State
	reason  string
	streams int // connections carried

	packets uint64    // received
	heard   time.Time // when Heard last saw a new packet
	ticked  time.Time

	begun time.Time // when the first connection was opened since the last packet; zero: none was

	asked      bool // a PING or probe was sent, and no packet has arrived since
	pinged     time.Time
	unanswered time.Duration // time since asked, without time in which the process did not run or was starved
	starved    time.Duration // starved time since the last packet
	reaching   bool          // Reach was returned and not answered yet
	closes     time.Duration // when unanswered is that long, the session closes; 0: the path may be at fault

	probing bool
	probed  time.Duration // time since the probe, without time in which the process did not run
	alive   bool          // a packet has arrived since the probe

	// While new connections do not tell whether there is an uplink.
	pause time.Duration // between probes
	again time.Time     // when the next probe is due
	down  time.Time     // since when there is no uplink; zero: there is one
	lost  bool          // what is carried can be reached without the gateway
}

// NewSession returns a session whose first probe has just been sent.
func NewSession(now time.Time) *Session {
	return &Session{heard: now, ticked: now, probing: true}
}

// State is Up exactly when the session takes new connections.
func (s *Session) State() State { return s.state }

// Sound reports whether the session is Up and has answered what it was last asked.
func (s *Session) Sound() bool { return s.state == Up && !s.probing }

// Resting reports whether the session is Up, carries nothing and waits for nothing.
func (s *Session) Resting() bool { return s.Sound() && !s.asked && s.streams == 0 }

// Reason returns why the session is not Up.
func (s *Session) Reason() string { return s.reason }

// Streams returns the number of connections that the session carries or is opening.
func (s *Session) Streams() int { return s.streams }

// Opened records that a connection is being opened, for which a request is sent to the gateway.
func (s *Session) Opened(now time.Time) {
	s.streams++
	if s.state == Up {
		s.again = now.Add(maxUplinkPause)
	}
	if s.begun.IsZero() {
		s.begun = now
	}
}

// Compared returns the session's Path for the choice of a session for a new connection. rtt
// is the latest RTT sample. If it is old, Compared asks for a PING, to have a new sample for
// the next connection.
func (s *Session) Compared(now time.Time, rtt time.Duration) (Path, Do) {
	p := Path{Streams: s.streams, RTT: rtt}
	if !s.begun.IsZero() {
		p.Quiet = now.Sub(s.begun)
	}
	return p, s.ask(now)
}

// Ended records that a carried connection has ended.
func (s *Session) Ended() Do {
	s.streams--
	if s.streams == 0 && s.state == Retired {
		return s.close(s.reason)
	}
	return 0
}

// Heard records the number of packets received so far. It must be called before every other event.
func (s *Session) Heard(now time.Time, packets uint64) Do {
	if packets == s.packets {
		return 0
	}
	s.packets, s.heard = packets, now
	s.asked, s.unanswered, s.starved, s.closes = false, 0, 0, 0
	s.begun = time.Time{}
	s.alive = true
	if s.state == Silent {
		return s.probe()
	}
	return 0
}

// Tick checks whether the gateway is silent. pto is the probe timeout of RFC 9002, section
// 6.2.1, which spaces retransmissions on long paths. starved says that this process has
// waited for the processor. An acknowledgement may then have arrived unread, so this time
// does not count. After CloseAfter it counts again, because the gateway may be gone as well.
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
	s.probed += ran
	if s.state == Dialling { // the probe's result decides
		return 0
	}
	if s.asked {
		s.unanswered += ran
		switch {
		case s.closes > 0 && s.unanswered >= s.closes, s.streams == 0 && s.unanswered >= CloseAfter:
			return s.close(Silence)
		case s.unanswered >= max(SilentAfter, 3*pto):
			s.silence()
		}
	}
	if (s.state == NoUplink || s.state == Retired || s.state == Up && s.streams > 0) && !s.probing && !now.Before(s.again) {
		s.pause = min(2*s.pause, maxUplinkPause)
		s.again = now.Add(s.pause)
		s.asked, s.pinged = true, now // the probe needs an acknowledgement, too
		do |= s.probe()
	}
	if s.probing || s.streams > 0 || s.state == Silent || now.Sub(s.heard) >= IdleAfter {
		do |= s.ask(now)
	}
	if do&Ping != 0 && s.unanswered >= SilentAfter && s.streams > 0 && s.closes == 0 && !s.reaching {
		s.reaching = true
		do |= Reach
	}
	return do
}

// Cut reports whether the gateway does not reach the Internet.
func (s *Session) Cut() bool { return (s.state == NoUplink || s.state == Retired) && !s.down.IsZero() }

// Lost reports whether connections that wait for an answer wait in vain, and would do better without the gateway.
func (s *Session) Lost() bool { return s.Cut() && s.lost }

// Reached records whether what the session carries can be reached without the gateway.
func (s *Session) Reached(ok bool) {
	s.reaching = false
	s.lost = ok
	if ok && s.unanswered > 0 {
		s.closes = s.unanswered + CloseAfter
	}
}

// ask returns Ping if no packet has arrived for AskAfter.
func (s *Session) ask(now time.Time) Do {
	if now.Sub(s.heard) < AskAfter || now.Sub(s.pinged) < AskAfter {
		return 0
	}
	s.asked, s.pinged = true, now
	return Ping
}

// Answered records an answer. reason explains an answer that is not Fine.
func (s *Session) Answered(now time.Time, q Question, a Answer, reason string) Do {
	if q == Uplink {
		s.probing = false
	}
	switch {
	case s.state == Closed:
	case a == Denied:
		return s.Retire(reason)
	case a == UplinkDown:
		return s.withoutUplink(now, reason)
	case (s.state == NoUplink || s.state == Retired) && q == Carry: // requested before the uplink failed, or for a target on this side of it
	default:
		if s.down = (time.Time{}); s.state != Retired {
			s.state, s.reason = Up, ""
			s.pause, s.again = maxUplinkPause, now.Add(maxUplinkPause)
		}
	}
	return 0
}

// withoutUplink records that the gateway does not reach the Internet.
func (s *Session) withoutUplink(now time.Time, reason string) Do {
	if !s.Cut() {
		s.down, s.lost = now, false
	}
	switch s.state {
	case Retired:
	case NoUplink:
		s.reason = reason
	default:
		s.state, s.reason = NoUplink, reason
		s.pause = minUplinkPause
		s.again = now.Add(s.pause)
	}
	if now.Sub(s.down) >= lostAfter && s.streams > 0 && !s.reaching {
		s.reaching = true
		return Reach
	}
	return 0
}

// Unanswered records that a question was not answered in time.
func (s *Session) Unanswered(q Question) Do {
	if q == Carry {
		switch {
		case s.state != Up && s.state != NoUplink:
			return 0
		case s.unanswered >= SilentAfter:
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
	case s.probed < SilentAfter: // the answer may have arrived unread
		return s.probe()
	case s.alive:
		return s.Retire(NoAnswers)
	}
	return 0
}

// Unasked records that a probe could not be sent because the gateway allows no more streams.
func (s *Session) Unasked() Do {
	s.probing = false
	if s.state == Dialling {
		return s.close(NoAnswers)
	}
	return 0
}

// Retire makes the session take no more connections.
func (s *Session) Retire(reason string) Do {
	if s.state == Closed || s.state == Retired {
		return 0
	}
	s.state, s.reason = Retired, reason
	if s.streams == 0 {
		return s.close(reason)
	}
	s.pause, s.again = maxUplinkPause, s.ticked.Add(maxUplinkPause)
	// A restarted gateway answers this probe with a stateless reset, which ends all carried
	// connections at once. It ignores packets as small as a PING.
	return s.probe()
}

// Gone records that the QUIC connection has ended.
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
