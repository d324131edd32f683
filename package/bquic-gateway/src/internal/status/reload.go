// SPDX-License-Identifier: Apache-2.0

package status

import "time"

// A Reload is the outcome of the last reload of a daemon's configuration.
type Reload struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"` // "": the configuration is in use
}

// NewReload returns the Reload that ends now with err.
func NewReload(err error) *Reload {
	r := &Reload{At: time.Now()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// Now returns r with its time by the clock as it is now: it may have been set since. It returns nil for nil.
func (r *Reload) Now() *Reload {
	if r == nil {
		return nil
	}
	return &Reload{time.Now().Add(-time.Since(r.At)), r.Error}
}
