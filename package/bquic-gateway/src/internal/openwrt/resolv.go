// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
)

const (
	resolvConf = "/etc/resolv.conf"
	// nameServers is where netifd writes the name servers that the router has. It replaces the file when they change.
	nameServers    = nameServersDir + "/resolv.conf.auto"
	nameServersDir = "/tmp/resolv.conf.d"
)

// FollowNameServers makes this process ask the name servers that the router has now, if resolvConf is a link to
// nameServers, as it is without a DNS server on the router. In a jail, ujail has mounted the file that this was when the
// daemon started: an empty one, if the router was booting.
func FollowNameServers() { followNameServers(nameServers) }

func followNameServers(written string) {
	at, err := os.Stat(resolvConf)
	now, err2 := os.Stat(written)
	if err != nil || err2 != nil || !os.SameFile(at, now) {
		return
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, instead(address, serversIn(resolvConf), serversIn(written)))
	}}
}

// instead returns the name server of now in the place that address has among the old ones, which Go asks in turn.
func instead(address string, old, now []string) string {
	if len(old) == 0 {
		old = []string{"127.0.0.1:53", "[::1]:53"} // Go's
	}
	if len(now) == 0 {
		return address
	}
	return now[max(slices.Index(old, address), 0)%len(now)]
}

// serversIn returns the addresses of the name servers in a file like /etc/resolv.conf.
func serversIn(file string) (servers []string) {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, net.JoinHostPort(words[1], "53"))
		}
	}
	return servers
}
