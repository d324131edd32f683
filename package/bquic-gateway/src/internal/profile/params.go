// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
)

// A Param is one transport parameter: an option of `config profile`.
type Param struct {
	Name string
	Type string // type of its value, as shown in the documentation
	Unit string
	Doc  string // one line

	// Stock is the value that untouched quic-go has.
	Stock string
	parse func(*quic.Burst, string) error
}

// Set parses value into b.
func (p *Param) Set(b *quic.Burst, value string) error { return p.parse(b, value) }

// Check returns an error if value is not valid.
func (p *Param) Check(value string) error { return p.parse(new(quic.Burst), value) }

// Params are all parameters, in the order in which they are shown.
var Params = []Param{
	{
		Name: "ack_packets", Type: "number, 0 = no limit", Unit: "packets", Stock: "2",
		Doc:   "As receiver: packets per acknowledgement. Without this option, those up to ask_peer have no effect.",
		parse: count(func(b *quic.Burst) *int { return &b.AckPackets }, "0", 1, 1000),
	}, {
		Name: "ack_delay", Type: "number", Unit: "ms", Stock: "25",
		Doc:   "Longest delay of an acknowledgement.",
		parse: millis(func(b *quic.Burst) *time.Duration { return &b.AckDelay }, 1, 1000),
	}, {
		Name: "ack_rtt_divisor", Type: "number, 0 = no such limit", Unit: "", Stock: "0",
		Doc:   "Also limits this delay to the time chosen by ack_rtt, divided by this number.",
		parse: number(func(b *quic.Burst) *int { return &b.AckRTTDivisor }, 0, 64),
	}, {
		Name: "ack_rtt", Type: "smoothed, min or queue", Unit: "", Stock: "smoothed",
		Doc: "The smoothed RTT, the minimum RTT, or the difference of the two, which is the queueing delay.",
		parse: func(b *quic.Burst, s string) error {
			switch s {
			case "smoothed":
				b.AckRTT = quic.BurstSmoothedRTT
			case "min":
				b.AckRTT = quic.BurstMinRTT
			case "queue":
				b.AckRTT = quic.BurstQueueRTT
			default:
				return fmt.Errorf("%q is not smoothed, min or queue", s)
			}
			return nil
		},
	}, {
		Name: "ack_after", Type: "number", Unit: "packets", Stock: "0",
		Doc:   "Packets at the start of a connection that are acknowledged as in stock quic-go.",
		parse: number(func(b *quic.Burst) *int { return &b.AckAfter }, 0, 1000000),
	}, {
		Name: "ack_reordering", Type: "number", Unit: "packets", Stock: "0",
		Doc:   "A gap triggers an immediate acknowledgement once this many later packets have arrived; 0 and 1: with the first.",
		parse: number(func(b *quic.Burst) *int { return &b.AckReordering }, 0, 1000),
	}, {
		Name: "ask_peer", Type: "0 or 1", Unit: "", Stock: "0",
		Doc:   "As sender: asks a peer that supports ACK_FREQUENCY to acknowledge in the same way.",
		parse: boolean(func(b *quic.Burst) *bool { return &b.AskPeer }),
	}, {
		Name: "burst_packets", Type: "number or unlimited", Unit: "packets", Stock: "10",
		Doc:   "Packets that may be sent back to back; unlimited: no pacing.",
		parse: count(func(b *quic.Burst) *int { return &b.BurstPackets }, "unlimited", 1, 10000),
	}, {
		Name: "congestion", Type: "reno or rate", Unit: "", Stock: "reno",
		Doc: "Congestion control: quic-go's NewReno, or NewReno with a model of the path, which ignores the slow_start options.",
		parse: func(b *quic.Burst, s string) error {
			switch s {
			case "reno":
				b.Congestion = quic.BurstReno
			case "rate":
				b.Congestion = quic.BurstRate
			default:
				return fmt.Errorf("%q is neither reno nor rate", s)
			}
			return nil
		},
	}, {
		Name: "slow_start_divisor", Type: "number", Unit: "", Stock: "8",
		Doc:   "Slow start ends when the RTT has risen by the minimum RTT divided by this number.",
		parse: number(func(b *quic.Burst) *int { return &b.SlowStartDivisor }, 1, 64),
	}, {
		Name: "slow_start_min", Type: "number", Unit: "ms", Stock: "4",
		Doc:   "Lower limit of that rise.",
		parse: millis(func(b *quic.Burst) *time.Duration { return &b.SlowStartMin }, 1, 1000),
	}, {
		Name: "slow_start_max", Type: "number", Unit: "ms", Stock: "16",
		Doc:   "Upper limit of that rise: it bounds the queue that slow start may build.",
		parse: millis(func(b *quic.Burst) *time.Duration { return &b.SlowStartMax }, 1, 1000),
	}, {
		Name: "loss_eighths", Type: "number", Unit: "RTT/8", Stock: "1",
		Doc:   "A packet counts as lost when it has been missing for one RTT plus this time.",
		parse: number(func(b *quic.Burst) *int { return &b.LossEighths }, 1, 64),
	}, {
		Name: "loss_packets", Type: "number", Unit: "packets", Stock: "3",
		Doc:   "A packet counts as lost when one sent this many packets later has arrived.",
		parse: number(func(b *quic.Burst) *int { return &b.LossPackets }, 3, 1000),
	}, {
		Name: "window_updates", Type: "0 or 1", Unit: "", Stock: "0",
		Doc:   "Sends flow-control window updates with every acknowledgement.",
		parse: boolean(func(b *quic.Burst) *bool { return &b.WindowUpdates }),
	}, {
		Name: "fast_pmtu", Type: "0 or 1", Unit: "", Stock: "0",
		Doc:   "Probes the largest packet size first instead of searching for it.",
		parse: boolean(func(b *quic.Burst) *bool { return &b.FastPMTU }),
	}, {
		Name: "gso", Type: "0 or 1", Unit: "", Stock: "1",
		Doc: "Passes packets to the kernel in batches (generic segmentation offload).",
		parse: func(b *quic.Burst, s string) error {
			gso, err := Bool(s)
			if err == nil {
				b.NoGSO = !gso
			}
			return err
		},
	},
}

func number(field func(*quic.Burst) *int, lowest, highest int) func(*quic.Burst, string) error {
	return func(b *quic.Burst, s string) error {
		n, err := Number(s, lowest, highest)
		if err == nil {
			*field(b) = n
		}
		return err
	}
}

// count is a number; the word unlimited stands for no limit.
func count(field func(*quic.Burst) *int, unlimited string, lowest, highest int) func(*quic.Burst, string) error {
	parse := number(field, lowest, highest)
	return func(b *quic.Burst, s string) error {
		if s == unlimited {
			*field(b) = quic.BurstUnlimited
			return nil
		}
		if err := parse(b, s); err != nil {
			return fmt.Errorf("%w, nor %s", err, unlimited)
		}
		return nil
	}
}

func millis(field func(*quic.Burst) *time.Duration, lowest, highest int) func(*quic.Burst, string) error {
	return func(b *quic.Burst, s string) error {
		n, err := Number(s, lowest, highest)
		if err == nil {
			*field(b) = time.Duration(n) * time.Millisecond
		}
		return err
	}
}

func boolean(field func(*quic.Burst) *bool) func(*quic.Burst, string) error {
	return func(b *quic.Burst, s string) error {
		v, err := Bool(s)
		if err == nil {
			*field(b) = v
		}
		return err
	}
}

// Number reads a whole number from lowest to highest.
func Number(s string, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	if n < lowest || n > highest {
		return 0, fmt.Errorf("%d is not in the range %d to %d", n, lowest, highest)
	}
	return n, nil
}

// Bool reads a truth value in the words that OpenWrt's scripts know.
func Bool(s string) (bool, error) {
	switch s {
	case "1", "on", "true", "yes", "enabled":
		return true, nil
	case "0", "off", "false", "no", "disabled":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither 0 nor 1", s)
}
