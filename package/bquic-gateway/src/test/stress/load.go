// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	webClients  = 200
	webRequests = 20 // of each
	relayed     = 2000

	// Ceilings of resident memory. A gateway is given loadMemory MiB; a relay is documented to
	// need 64 KiB for each carried connection (docs/gateway.md). The gateway counts
	// tunnel.tunnelMemory for each tunnel, and has room for others.
	loadMemory   = 256
	relayCeiling = relayed*64<<10 + overhead<<20
)

type loadResults struct {
	Web struct {
		Clients  int     `json:"clients"`
		Requests int64   `json:"requests"`
		Errors   int64   `json:"errors"`
		Seconds  float64 `json:"seconds"`
		RSS      int64   `json:"gateway_rss_max_bytes"`
	} `json:"web"`
	Relay struct {
		Connections
		GatewayRSS int64 `json:"gateway_rss_max_bytes"`
		RelayRSS   int64 `json:"relay_rss_max_bytes"`
		Carried    int64 `json:"carried_at_once"`
	} `json:"relay"`
	GatewayCeiling int64 `json:"gateway_rss_ceiling_bytes"`
	RelayCeiling   int64 `json:"relay_rss_ceiling_bytes"`
}

// runLoad puts the largest supported load on a gateway and a relay.
func runLoad(ctx context.Context, bquic, output string, lasting time.Duration) error {
	b, err := newBed()
	if err != nil {
		return err
	}
	defer b.Close()
	os.Setenv("GOMEMLIMIT", fmt.Sprintf("%dMiB", loadMemory))
	err = b.startGateway(ctx, bquic, "bquic", "")
	os.Unsetenv("GOMEMLIMIT")
	if err != nil {
		return err
	}
	results := loadResults{GatewayCeiling: (loadMemory + overhead) << 20, RelayCeiling: relayCeiling}

	w := b.gateway.watch(ctx)
	web := &results.Web
	page := filepath.Join(b.dir, "site/page")
	out, err := b.command("phone", os.Args[0], "browse", page, fmt.Sprint(lasting)).Output()
	w.end()
	if err = errors.Join(err, json.Unmarshal(out, web)); err != nil {
		return fmt.Errorf("HTTP/3 clients: %w", err)
	}
	web.RSS = w.rss.Load()
	fmt.Printf("%d HTTP/3 clients: %d requests in %.1f s, %d errors, gateway's RSS at most %.1f MiB\n",
		web.Clients, web.Requests, web.Seconds, web.Errors, mib(web.RSS))

	if err := errors.Join(b.start("origin", "echo", originAddr), b.startRelay(ctx, bquic, "bquic")); err != nil {
		return err
	}
	w, v := b.gateway.watch(ctx), b.relay.watch(ctx)
	cmd := b.command("phone", os.Args[0], "connections", originAddr, fmt.Sprint(relayed))
	hold, _ := cmd.StdinPipe()
	var answer bytes.Buffer
	cmd.Stdout = &answer
	if err := cmd.Start(); err != nil {
		return err
	}
	// All connections are open, and stay open until the clients' input ends.
	var last daemonStatus
	err = until(ctx, "all connections to be carried", func() bool {
		s, serr := b.relay.status()
		results.Relay.Carried = max(results.Relay.Carried, s.Carried.Now)
		last = s
		return serr != nil || s.Carried.Now >= relayed
	})
	if err == nil {
		pause(ctx, 3*time.Second)
	} else {
		err = fmt.Errorf("%w: %+v", err, last)
	}
	hold.Close()
	err = errors.Join(err, cmd.Wait())
	w.end()
	v.end()
	r := &results.Relay
	if err = errors.Join(err, json.Unmarshal(answer.Bytes(), &r.Connections)); err != nil {
		return fmt.Errorf("relayed connections: %w", err)
	}
	r.GatewayRSS, r.RelayRSS = w.rss.Load(), v.rss.Load()
	fmt.Printf("%d relayed connections at once (%d carried): %d errors, %.1f MB, relay's RSS at most %.1f MiB, gateway's %.1f MiB\n",
		r.Opened, r.Carried, r.Errors, float64(r.Bytes)/1e6, mib(r.RelayRSS), mib(r.GatewayRSS))

	s, err := b.relay.status()
	switch {
	case err != nil:
	case web.Requests != webClients*webRequests || web.Errors > 0:
		err = fmt.Errorf("of %d requests %d were answered, with %d errors", webClients*webRequests, web.Requests, web.Errors)
	case r.Errors > 0 || r.Opened != relayed || s.Direct.Total > 0:
		err = fmt.Errorf("of %d relayed connections %d were opened, with %d errors, %d went direct", relayed, r.Opened, r.Errors, s.Direct.Total)
	case max(web.RSS, r.GatewayRSS) > results.GatewayCeiling:
		err = fmt.Errorf("the gateway's ceiling is %.0f MiB", mib(results.GatewayCeiling))
	case r.RelayRSS > results.RelayCeiling:
		err = fmt.Errorf("the relay's ceiling is %.0f MiB", mib(results.RelayCeiling))
	}
	if output != "" {
		err = errors.Join(err, writeJSON(output, []loadResults{results}))
	}
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// runBrowse runs all HTTP/3 clients. Each has one connection, and requests the page
// webRequests times, spread over lasting.
func runBrowse(ctx context.Context, page string, lasting time.Duration) error {
	want, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	target = netip.MustParseAddrPort(gatewayAddr)
	attacker = nil // any address of this namespace
	var requests, failures atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for range webClients {
		wg.Go(func() {
			n, err := browse(ctx, want, lasting)
			requests.Add(int64(n))
			if err != nil {
				failures.Add(1)
				fmt.Fprintln(os.Stderr, "client:", err)
			}
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"clients": webClients, "requests": requests.Load(), "errors": failures.Load(), "seconds": time.Since(start).Seconds(),
	})
}

func browse(ctx context.Context, want []byte, lasting time.Duration) (n int, err error) {
	pause(ctx, rand.N(lasting/webRequests))
	conn, end, err := dialQUIC(ctx, attacker, &quic.Config{KeepAlivePeriod: 10 * time.Second})
	if err != nil {
		return 0, err
	}
	defer end()
	defer conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
	client := (&http3.Transport{DisableCompression: true}).NewClientConn(conn)
	for range webRequests {
		next := time.After(lasting / webRequests)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+siteHost+"/page", nil)
		if err != nil {
			return n, err
		}
		res, err := client.RoundTrip(req)
		if err != nil {
			return n, err
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && (res.StatusCode != http.StatusOK || !bytes.Equal(body, want)) {
			err = fmt.Errorf("status %d, %d bytes that are not the page's", res.StatusCode, len(body))
		}
		if err != nil {
			return n, err
		}
		n++
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-next:
		}
	}
	return n, nil
}

// serve passes each connection to handle, and closes it afterwards.
func serve(address string, handle func(net.Conn)) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			handle(conn)
		}()
	}
}

// runEcho is an echo server.
func runEcho(address string) error {
	return serve(address, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
}

// Connections is the result of many simultaneous TCP connections.
type Connections struct {
	Opened int64 `json:"opened"`
	Errors int64 `json:"errors"`
	Bytes  int64 `json:"bytes"` // both directions
}

// runConnections opens n connections, holds all of them until the standard input ends, and
// uses each before and after.
func runConnections(ctx context.Context, address string, n int) error {
	held := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(held)
	}()
	var opened, failures, carried atomic.Int64
	dialing := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			err := func() error {
				dialing <- struct{}{}
				conn, err := (&net.Dialer{Timeout: 2 * time.Minute}).DialContext(ctx, "tcp", address)
				if err == nil {
					defer conn.Close()
					err = echo(conn, 4<<10)
				}
				<-dialing
				if err != nil {
					return err
				}
				opened.Add(1)
				<-held
				err = echo(conn, 32<<10)
				carried.Add(2 * (4 + 32) << 10)
				return err
			}()
			if err != nil {
				if failures.Add(1) <= 10 {
					fmt.Fprintln(os.Stderr, "connection:", err)
				}
			}
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(Connections{opened.Load(), failures.Load(), carried.Load()})
}

// echo sends size bytes and expects them back.
func echo(conn net.Conn, size int) error {
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	defer conn.SetDeadline(time.Time{})
	sent := garbage(size)
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		failed <- err
	}()
	got := make([]byte, size)
	_, err := io.ReadFull(conn, got)
	if werr := <-failed; werr != nil {
		return werr
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return errors.New("other bytes came back")
	}
	return nil
}
