// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"net"
	"net/netip"
	"time"

	"bquic/internal/system"
)

// nextDelay is how long an address may take to answer until the next one is tried as well (RFC 8305, section 5).
const nextDelay = 300 * time.Millisecond

// dial connects to an origin. What DNS takes does not count as the origin's time, or a dead name server would make
// each request fail.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := system.Resolve(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, originDialTimeout)
	defer cancel()
	d := net.Dialer{KeepAlive: 30 * time.Second}
	return race(addrs, func(addr netip.Addr) (net.Conn, error) {
		return d.DialContext(ctx, network, net.JoinHostPort(addr.String(), port))
	})
}

// race returns the first connection. It puts the first address of the other IP version second. If there is no
// connection, the error is that of the first address.
func race(addrs []netip.Addr, dial func(netip.Addr) (net.Conn, error)) (net.Conn, error) {
	for i := 1; i < len(addrs); i++ {
		if addrs[i].Is4() != addrs[0].Is4() {
			addrs[1], addrs[i] = addrs[i], addrs[1]
			break
		}
	}
	type result struct {
		conn net.Conn
		err  error
		of   int
	}
	results, won := make(chan result), make(chan struct{})
	defer close(won)
	next := time.NewTimer(0)
	defer next.Stop()
	var first error
	for begun, failed := 0, 0; failed < len(addrs); {
		select {
		case <-next.C:
			if begun == len(addrs) {
				continue
			}
			i := begun
			begun++
			go func() {
				conn, err := dial(addrs[i])
				select {
				case results <- result{conn, err, i}:
				case <-won:
					if err == nil {
						conn.Close()
					}
				}
			}()
			next.Reset(nextDelay)
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			failed++
			if r.of == 0 {
				first = r.err
			}
			next.Reset(0)
		}
	}
	return nil, first
}
