// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"bquic/internal/divert"
)

// moreAddresses is the number of additional addresses of a phone.
const moreAddresses = 8

func init() {
	for i := range moreAddresses {
		route[fmt.Sprintf("fd77::1:%d", i)] = "forwarded"
	}
}

// flowPort is not the one of DNS: a flow there ends soon after its answer.
const flowPort = 5000

// TestFlowLimits has a client that exceeds its limit of flows, from several addresses.
// The kernel forwards the excess, so that other clients' flows are still carried.
func TestFlowLimits(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greetUDP(flowPort)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: flowPort, Last: flowPort}}
	node := m.startRelay(c)
	const addresses, each, most = moreAddresses, 20, 128 // maxClientFlows
	for i := range addresses {
		m.ip("phone", fmt.Sprintf("-6 addr add fd77::1:%d/64 dev lan nodad", i))
	}
	ways := map[string]int{}
	for i := range addresses * each {
		var conn net.Conn
		if err := m.in("phone", func() (err error) {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(fmt.Sprintf("fd77::1:%d", i%addresses))}}
			conn, err = d.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(origin6), flowPort).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ways[m.ask(conn, fmt.Sprint("flow ", i))]++
	}
	if ways["carried"] != most || ways["forwarded"] != addresses*each-most {
		t.Errorf("ways: %v", ways)
	}
	if way, _ := m.askBy(node, netip.AddrPortFrom(netip.MustParseAddr(origin4), flowPort).String(), "another client"); way != "carried" {
		t.Errorf("another client's flow was %s", way)
	}
	if f := node.figures(); f.Relay.UDP.Now != most+1 {
		t.Errorf("%d flows", f.Relay.UDP.Now)
	}
}

// TestFlowsOfSmallRouter has a router whose memory holds few connections. There are no more flows than that.
func TestFlowsOfSmallRouter(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greetUDP(flowPort)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: flowPort, Last: flowPort}}
	c.Limit = 3
	node := m.startRelay(c)
	for i := range 2 * c.Limit {
		want := "carried"
		if i >= c.Limit {
			want = "forwarded"
		}
		if way, _ := m.askBy(node, netip.AddrPortFrom(netip.MustParseAddr(origin4), flowPort).String(), fmt.Sprint("flow ", i)); way != want {
			t.Errorf("the flow %d: %s", i, way)
		}
	}
}

// TestNoPort checks that the relay has no UDP port to which others can send.
func TestNoPort(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	m.startRelay(c)
	out, err := exec.Command("ip", "netns", "exec", m.ns["node"], "ss", "-Huln").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), fmt.Sprintf(":%d ", 12443)) {
		t.Errorf("open UDP ports:\n%s", out)
	}
}
