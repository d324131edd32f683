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
