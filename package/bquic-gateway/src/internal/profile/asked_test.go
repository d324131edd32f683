// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"testing"
	"time"
)

// TestAsked checks that data flows again as soon as the path works again, not only when the next PTO expires, whose backoff has
// grown with the outage. The client asks every second, as the relay does.
func TestAsked(t *testing.T) {
	tlsConf := tlsConfig(t)
	near := medium{name: "near", rate: 2e6, delay: 2 * time.Millisecond, queue: 25}
	far := medium{name: "far", rate: 2e6, delay: 150 * time.Millisecond, queue: 50}
	for _, m := range []medium{near, far} {
		for _, upload := range []bool{false, true} {
			for _, outage := range []time.Duration{5 * time.Second, 70 * time.Second} {
				t.Run(fmt.Sprintf("%s/upload=%v/%s", m.name, upload, outage), func(t *testing.T) {
					overPath(t, tlsConf, m, profileNamed(BQUIC).Burst, fullSize, func(e *ends) {
						stop := make(chan struct{})
						defer close(stop)
						go func() {
							for {
								select {
								case <-time.After(time.Second):
									e.client.Ping()
								case <-stop:
									return
								}
							}
						}()
						from, to := e.server, e.client
						if upload {
							from, to = to, from
						}
						f := startFlow(t, from, to, 0, 64<<10)
						time.Sleep(15 * time.Second)
						e.path.set(0)
						time.Sleep(outage)
						f.longest()
						e.path.set(fullSize)
						time.Sleep(10 * time.Second)
						if gap, got, err := f.longest(); err != nil || gap > within || got < 1<<20 {
							t.Errorf("longest gap %s, %d bytes, %v", gap, got, err)
						}
						f.stop()
					})
				})
			}
		}
	}
}
