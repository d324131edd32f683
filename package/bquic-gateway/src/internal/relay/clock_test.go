// SPDX-License-Identifier: Apache-2.0

//go:build vm

package relay_test

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
)

// TestClockJump sets the machine's clock, which all network namespaces share. So
// it is built for and run in a virtual machine only (scripts/test-vm). Routers
// have no battery-backed clock, and boot in some other year.
func TestClockJump(t *testing.T) {
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	gateway := m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	carried := m.echo(node, origin4+":81")
	carried.says("before")
	for _, years := range []int{1, -2, 30} {
		before := time.Now()
		// Without the monotonic reading, which does not jump.
		now := syscall.NsecToTimeval(before.AddDate(years, 0, 0).UnixNano())
		if err := syscall.Settimeofday(&now); err != nil {
			t.Fatal(err)
		}
		if got := time.Now().Year(); got != before.AddDate(years, 0, 0).Year() {
			t.Fatalf("the year is %d", got)
		}
		carried.says("after the jump")
		time.Sleep(3 * time.Second) // anything that depends on the time would show
		carried.says("later")
		m.recovers(fmt.Sprintf("a jump of %d years", years))
		// A new session must work: the pin replaces the validity dates of the
		// certificate, which is now expired or not yet valid, and a session
		// ticket from another year does no harm.
		gateway.signal(syscall.SIGKILL)
		gateway = m.startGateway()
		m.recovers("a jump and a kill of the gateway")
		carried = m.echo(node, origin4+":81")
		carried.says("in a new session")
	}
}
