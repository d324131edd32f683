// SPDX-License-Identifier: Apache-2.0

package status

import "time"

// A Reload is how the last reading of a daemon's configuration ended.
type Reload struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"` // "": it is in use
}

// NewReload returns the Reload that ends now with err.
func NewReload(err error) *Reload {
	r := &Reload{At: time.Now()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}
