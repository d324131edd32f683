// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"runtime"
	"time"
)

// A Daemon holds the fields that the status of every daemon has.
type Daemon struct {
	Role       string  `json:"role"`
	Version    string  `json:"version"`
	Uptime     float64 `json:"uptime_s"`
	Goroutines int     `json:"goroutines"`
	Reload     *Reload `json:"reload,omitempty"` // the last one
	// Stopping: it takes nothing new, and ends when what it carries has ended.
	Stopping bool `json:"stopping,omitempty"`
}

// NewDaemon returns the fields now, of a daemon that has run since started, until ctx ends.
func NewDaemon(ctx context.Context, role, version string, started time.Time, reload *Reload) Daemon {
	return Daemon{role, version, time.Since(started).Seconds(), runtime.NumGoroutine(), reload.now(), ctx.Err() != nil}
}

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

// OK reports whether the configuration is in use; nil: there was no reload.
func (r *Reload) OK() bool { return r == nil || r.Error == "" }

// now returns r with its time by the clock as it is now: it may have been set since. It returns nil for nil.
func (r *Reload) now() *Reload {
	if r == nil {
		return nil
	}
	return &Reload{time.Now().Add(-time.Since(r.At)), r.Error}
}
