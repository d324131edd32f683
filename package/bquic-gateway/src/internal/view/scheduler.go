// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"strconv"

	"bquic/internal/proof"
)

// A Scheduler is the part of a wifirrd's status that says what its trials have shown.
type Scheduler struct {
	Device     string `json:"device"`
	Gain       *Gain  `json:"gain"` // of turns; nil: not tried
	Contention struct {
		Gain    *Gain `json:"gain"` // of larger windows
		RTSGain *Gain `json:"rts_gain"`
	} `json:"contention"`
}

// A Gain is how much is delivered with a lever, in thousandths of what is delivered without it.
type Gain struct {
	Permille int  `json:"permille"`
	Low      int  `json:"low"`
	High     int  `json:"high"`
	Trials   int  `json:"trials"`
	On       bool `json:"on"`
}

// Trials draws a row for each lever that was tried.
func Trials(schedulers []Scheduler) string {
	t := table{head: []string{"scheduler", "lever", "delivered with it", "trials", ""}}
	for _, s := range schedulers {
		for i, g := range []*Gain{s.Contention.Gain, s.Contention.RTSGain, s.Gain} {
			if g != nil {
				c := proof.Change{Change: float64(g.Permille-1000) / 1000, Low: float64(max(g.Low, 0)-1000) / 1000, High: float64(g.High-1000) / 1000}
				t.rows = append(t.rows, []string{s.Device, [...]string{"larger windows", "RTS", "turns"}[i], percent(&c, false), strconv.Itoa(g.Trials), word(g.On, "used", "not used")})
			}
		}
	}
	var b bytes.Buffer
	t.draw(&b)
	return b.String()
}
