// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"bquic/internal/config"
	"bquic/internal/dnstest"
)

// TestDeadNameServer has an origin that is named, and a name server that does not answer before one that does: requests take longer,
// and succeed.
func TestDeadNameServer(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	dnstest.UseAfterSilence(t, dnstest.Serve(t, net.IPv4(127, 0, 0, 1)))
	srv, _ := serve(t, config.Site{Origins: []*url.URL{{Scheme: "http", Host: "origin.test:" + port}}})
	if res, text := ask(t, http.MethodPost, srv.URL); res.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", res.StatusCode, text)
	}
}

// TestRace: which addresses are tried when, and which of them wins.
func TestRace(t *testing.T) {
	four, six, more := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	type answer struct {
		after time.Duration
		fails bool
	}
	silent := answer{time.Hour, true}
	for _, tc := range []struct {
		name    string
		addrs   []netip.Addr
		answers map[netip.Addr]answer
		wins    netip.Addr // invalid: none
		after   time.Duration
	}{
		{"one", []netip.Addr{four}, map[netip.Addr]answer{four: {time.Second, false}}, four, time.Second},
		{"one that fails", []netip.Addr{four}, map[netip.Addr]answer{four: {time.Second, true}}, netip.Addr{}, time.Second},
		{"the first one is silent", []netip.Addr{six, four}, map[netip.Addr]answer{six: silent, four: {time.Second, false}}, four, nextDelay + time.Second},
		{"the other version comes second", []netip.Addr{six, more, four}, map[netip.Addr]answer{six: silent, more: silent, four: {0, false}}, four, nextDelay},
		{"the first one refuses", []netip.Addr{six, four}, map[netip.Addr]answer{six: {0, true}, four: {time.Second, false}}, four, time.Second},
		{"the first one answers late", []netip.Addr{six, four}, map[netip.Addr]answer{six: {time.Second, false}, four: {time.Minute, false}}, six, time.Second},
		{"all refuse", []netip.Addr{six, more, four}, map[netip.Addr]answer{six: {0, true}, more: {0, true}, four: {0, true}}, netip.Addr{}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			left := make(map[netip.Addr]bool)
			conn, err := race(tc.addrs, func(addr netip.Addr) (net.Conn, error) {
				time.Sleep(tc.answers[addr].after)
				if tc.answers[addr].fails {
					return nil, errors.New(addr.String())
				}
				return &raced{addr: addr, closed: func() { left[addr] = true }}, nil
			})
			if took := time.Since(begun); took != tc.after {
				t.Errorf("%s: after %v", tc.name, took)
			}
			if !tc.wins.IsValid() {
				if err == nil || err.Error() != tc.addrs[0].String() {
					t.Errorf("%s: %v", tc.name, err)
				}
			} else if err != nil || conn.(*raced).addr != tc.wins {
				t.Errorf("%s: %v, %v", tc.name, conn, err)
			}
			time.Sleep(2 * time.Hour) // the others end
			synctest.Wait()
			for addr, a := range tc.answers {
				if late := !a.fails && addr != tc.wins; left[addr] != late {
					t.Errorf("%s: the connection to %v is closed: %v", tc.name, addr, left[addr])
				}
			}
		})
	}
}

type raced struct {
	net.Conn
	addr   netip.Addr
	closed func()
}

func (r *raced) Close() error {
	r.closed()
	return nil
}
