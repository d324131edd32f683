// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"os"
	"runtime"
	"time"
)

// Status tells what the gateway is doing.
func (s *Server) Status() Status {
	st := Status{
		Role:       "gateway",
		Version:    s.version,
		Uptime:     time.Since(s.started).Seconds(),
		PID:        os.Getpid(),
		Goroutines: runtime.NumGoroutine(),
		Listen:     s.addr.String(),
		Pin:        s.pin.String(),
		Profiles:   []string{s.cfg.MeshProfile.Name, s.cfg.Standard.Name},
		TCP:        s.conns.tcp.Load(),
	}
	st.Connections, st.Live, st.Total = s.conns.reports()
	if s.tunnel != nil {
		stats := s.tunnel.Stats()
		st.Tunnels = &stats
	}
	return st
}
