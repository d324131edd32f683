// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// resolveTimeout is how long DNS may take. Go asks a name server that is dead for 5 s before it asks the next
// one, and waits as long, twice, for the IPv6 addresses of a server that does not answer such questions.
const resolveTimeout = 30 * time.Second

// Resolve returns the addresses of a host, which may be an address itself.
func Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i, addr := range addrs {
		addrs[i] = addr.Unmap()
	}
	return addrs, err
}
