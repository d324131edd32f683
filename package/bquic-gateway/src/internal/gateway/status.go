// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"os"
	"runtime"
	"time"
)

// Status tells what the gateway is doing.
func (s *Server) Status() Status {
	cfg := &s.now.Load().cfg
	st := Status{
		Role:       "gateway",
		Version:    s.version,
		Uptime:     time.Since(s.started).Seconds(),
		PID:        os.Getpid(),
		Goroutines: runtime.NumGoroutine(),
		Listen:     s.addr.String(),
		Pin:        s.pin().String(),
		Profiles:   []string{cfg.MeshProfile.Name, cfg.Standard.Name},
		TCP:        s.conns.tcp.Load(),
	}
	st.Connections, st.Live, st.Total = s.conns.reports()
	st.Origins = s.now.Load().sites.Origins()
	st.Reload = s.reload.Load()
	st.Refused = s.admit.refusals()
	if cfg.Token != "" {
		stats := s.tunnel.Stats()
		st.Tunnels = &stats
	}
	return st
}
