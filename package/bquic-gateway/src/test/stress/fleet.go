// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/peer"
	"bquic/internal/profile"
	"bquic/internal/tunnel"
)

const (
	fleetGreedyLoad = 16 << 20 // bytes per connection of the greedy peer
	// Sizes of all other transfers; each order of magnitude is equally frequent.
	fleetSmallest, fleetLargest = 1 << 10, 1 << 20
	fleetPatience               = 2 * time.Minute
	// The run lasts until peers have made this many transfers on average, because a share of
	// fewer says little, but at most fleetLongest times as long as requested.
	fleetTransfers, fleetLongest = 150, 4
)

// A fleetResult is a row of results/fleet.json.
type fleetResult struct {
	Peers       int     `json:"peers"`
	Connections int     `json:"connections"` // of each peer, at a time
	Greed       int     `json:"greed"`       // how many times as many the greedy peer tries to open
	Seconds     float64 `json:"seconds"`
	Transfers   int64   `json:"transfers"`
	Bytes       int64   `json:"bytes"`
	Errors      int64   `json:"errors"`
	Refused     int64   `json:"greedy_refused"` // tunnels of the greedy peer
	RSS         float64 `json:"rss_mib"`
	Ceiling     float64 `json:"ceiling_mib"`
	Jain        float64 `json:"jain"`
	GreedyShare float64 `json:"greedy_over_mean"`
	RevokedMS   float64 `json:"revoked_ms"`
	StillOpen   int     `json:"revoked_still_open"` // tunnels
	Others      int     `json:"others_ended"`       // tunnels of peers that were not revoked
	Load        float64 `json:"load_before"`        // of the machine, 1 minute
}

// runFleet runs many relays on one gateway, one of which takes as much as it can, and then
// revokes the token of another one. The gateway's memory is in MiB.
func runFleet(ctx context.Context, bquic, output string, peers, connections, greed, memory int, lasting time.Duration) error {
	b, err := newBed()
	if err != nil {
		return err
	}
	defer b.Close()
	row := fleetResult{Peers: peers, Connections: connections, Greed: greed, Ceiling: float64(memory + overhead), Load: loadAverage()}
	addresses := new(strings.Builder)
	for i := range peers {
		fmt.Fprintf(addresses, "addr add %s/32 dev to-gateway\n", fleetAddress(i))
	}
	cmd := b.command("node", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(addresses.String())
	if err := errors.Join(cmd.Run(), ip("-n "+b.ns("gateway")+" route add 10.79.0.0/16 via 10.78.0.1")); err != nil {
		return err
	}
	config := func(revoked int) string {
		more := fmt.Sprintf("\toption memory '%d'\n", memory)
		for i := range peers {
			if i != revoked {
				more += fmt.Sprintf("config peer 'p%d'\n\tlist token '%s'\n", i, peer.HashOf(fleetToken(i)))
			}
		}
		return more
	}
	err = errors.Join(b.start("origin", "sizes", originAddr), b.startGateway(ctx, bquic, "bquic", config(-1)))
	if err != nil {
		return err
	}
	w := b.gateway.watch(ctx)
	defer w.end()
	cmd = b.command("node", os.Args[0], "fleet-peers", fmt.Sprint(peers), fmt.Sprint(connections), fmt.Sprint(greed), lasting.String())
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(ierr, oerr, cmd.Start()); err != nil {
		return err
	}
	b.children = append(b.children, cmd)
	answers := json.NewDecoder(bufio.NewReader(out))
	if err := answers.Decode(&row); err != nil {
		return fmt.Errorf("the peers: %w", err)
	}
	row.RSS = mib(w.rss.Load())

	// Now all hold their connections. The second peer is removed.
	file := filepath.Join(b.dir, "gateway.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), config(-1), config(1), 1)), 0o600); err != nil {
		return err
	}
	start := time.Now()
	_ = b.gateway.cmd.Process.Signal(syscall.SIGHUP)
	var st struct {
		Tunnels struct {
			Peers []struct{ Name string } `json:"peers"`
		} `json:"tunnels"`
	}
	if err := until(ctx, "the revoked peer to be gone", func() bool {
		if b.gateway.read(&st) != nil || len(st.Tunnels.Peers) == 0 {
			return false
		}
		for _, p := range st.Tunnels.Peers {
			if p.Name == "p1" {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	row.RevokedMS = float64(time.Since(start).Microseconds()) / 1000
	pause(ctx, time.Second)
	fmt.Fprintln(in, "count")
	if err := answers.Decode(&row); err != nil {
		return fmt.Errorf("the peers after the revocation: %w", err)
	}
	fmt.Printf("%d peers with %d connections each, %.0f s: %d transfers, %.1f GB, %d errors, Jain %.3f (the greedy one has %.1f times the mean, "+
		"%d of its tunnels were refused), gateway's RSS at most %.0f of %.0f MiB; a revoked peer's tunnels ended in %.0f ms (%d left, %d of others ended)\n",
		row.Peers, row.Connections, row.Seconds, row.Transfers, float64(row.Bytes)/1e9, row.Errors, row.Jain, row.GreedyShare, row.Refused,
		row.RSS, row.Ceiling, row.RevokedMS, row.StillOpen, row.Others)
	switch {
	case row.Errors > 0:
		err = fmt.Errorf("%d errors", row.Errors)
	case row.RSS > row.Ceiling:
		err = fmt.Errorf("the gateway's ceiling is %.0f MiB", row.Ceiling)
	case row.Jain < 0.9:
		err = fmt.Errorf("a Jain index of %.3f", row.Jain)
	case row.StillOpen > 0 || row.Others > 0:
		err = fmt.Errorf("%d tunnels of the revoked peer are open, %d of others ended", row.StillOpen, row.Others)
	}
	if output != "" {
		err = errors.Join(err, writeJSON(output, []fleetResult{row}))
	}
	return err
}

func fleetAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 79, byte(i / 250), byte(1 + i%250)})
}
func fleetToken(i int) string { return fmt.Sprintf("token-of-peer-%d", i) }

func loadAverage() (load float64) {
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &load)
	return load
}

// pattern is the data that runSizes sends repeatedly.
var pattern = func() []byte {
	b := make([]byte, 1<<16)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}()

// runSizes answers each number, of 4 bytes, with that many bytes.
func runSizes(address string) error {
	return serve(address, func(conn net.Conn) {
		for number := make([]byte, 4); ; {
			if _, err := io.ReadFull(conn, number); err != nil {
				return
			}
			for left := int(binary.BigEndian.Uint32(number)); left > 0; left -= len(pattern) {
				if _, err := conn.Write(pattern[:min(left, len(pattern))]); err != nil {
					return
				}
			}
		}
	})
}

// A fleetPeer is a relay without clients.
type fleetPeer struct {
	number     int
	connection *http3.ClientConn
	bytes      atomic.Int64
}

// runFleetPeers runs all peers. It prints the results of their load. Then each peer holds its
// connections until a line is read, and it prints what happened to them.
func runFleetPeers(ctx context.Context, peers, connections, greed int, lasting time.Duration) error {
	all := make([]*fleetPeer, peers)
	var wg sync.WaitGroup
	var dialled atomic.Int64
	for i := range all {
		wg.Go(func() {
			p, err := dialFleetPeer(ctx, i)
			if err != nil {
				fmt.Fprintf(os.Stderr, "peer %d: %v\n", i, err)
				return
			}
			all[i] = p
			dialled.Add(1)
		})
	}
	wg.Wait()
	if int(dialled.Load()) != peers {
		return fmt.Errorf("%d of %d peers reached the gateway", dialled.Load(), peers)
	}
	var transfers, failures, refused atomic.Int64
	start := time.Now()
	// With few transfers of random sizes, even fair shares differ, so a slow machine needs more time.
	enough, end := start.Add(lasting), start.Add(fleetLongest*lasting)
	over := func() bool {
		now := time.Now()
		return now.After(end) || (now.After(enough) && transfers.Load() >= int64(peers*fleetTransfers))
	}
	for i, p := range all {
		n := connections
		if i == 0 {
			n *= greed
		}
		for j := range n {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for !over() {
					size := int(fleetSmallest * math.Pow(fleetLargest/fleetSmallest, rng.Float64()))
					if i == 0 {
						size = fleetGreedyLoad
					}
					err := p.transfer(ctx, size, over)
					switch {
					case err == nil:
						transfers.Add(1)
					case errors.Is(err, errOver):
					case i == 0 && errors.Is(err, errNoPlace):
						refused.Add(1)
						pause(ctx, time.Second)
					default:
						if failures.Add(1) <= 10 {
							fmt.Fprintf(os.Stderr, "peer %d: %v\n", i, err)
						}
						pause(ctx, time.Second)
					}
				}
			})
		}
	}
	wg.Wait()
	row := fleetResult{Seconds: time.Since(start).Seconds(), Transfers: transfers.Load(), Errors: failures.Load(), Refused: refused.Load()}
	sum, squares := 0.0, 0.0
	for _, p := range all {
		n := float64(p.bytes.Load())
		row.Bytes += p.bytes.Load()
		sum += n
		squares += n * n
	}
	row.Jain = sum * sum / (float64(peers) * squares)
	row.GreedyShare = float64(all[0].bytes.Load()) / (sum / float64(peers))

	held := make([][]*http3.RequestStream, peers)
	for i, p := range all {
		wg.Go(func() {
			for range connections {
				str, err := p.open(ctx)
				if err == nil {
					_, err = ask(str, 1, nil)
				}
				if err != nil {
					failures.Add(1)
					fmt.Fprintf(os.Stderr, "peer %d, to hold: %v\n", i, err)
					return
				}
				held[i] = append(held[i], str)
			}
		})
	}
	wg.Wait()
	row.Errors = failures.Load()
	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode(fleetFigures(row)); err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var open, ended atomic.Int64
	for i := range all {
		wg.Go(func() {
			for _, str := range held[i] {
				_, err := ask(str, 1, nil)
				switch {
				case i == 1 && err == nil:
					open.Add(1)
				case i != 1 && err != nil:
					ended.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return encoder.Encode(map[string]int64{"revoked_still_open": open.Load(), "others_ended": ended.Load()})
}

// fleetFigures returns the figures that the peers know.
func fleetFigures(r fleetResult) map[string]any {
	return map[string]any{
		"seconds": r.Seconds, "transfers": r.Transfers, "bytes": r.Bytes, "errors": r.Errors,
		"greedy_refused": r.Refused, "jain": r.Jain, "greedy_over_mean": r.GreedyShare,
	}
}

func dialFleetPeer(ctx context.Context, i int) (*fleetPeer, error) {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(fleetAddress(i), 0)))
	if err != nil {
		return nil, err
	}
	burst, err := profile.NewSet().Get(profile.BQUIC)
	if err != nil {
		return nil, err
	}
	// Like a relay, it retries until it is admitted.
	for deadline := time.Now().Add(fleetPatience); ; {
		attempt, cancel := context.WithTimeout(ctx, 20*time.Second)
		conn, err := (&quic.Transport{Conn: udp}).Dial(attempt, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(gatewayAddr)),
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}},
			&quic.Config{KeepAlivePeriod: 10 * time.Second, MaxIdleTimeout: time.Minute, Burst: burst.Burst})
		cancel()
		if err == nil {
			return &fleetPeer{number: i, connection: (&http3.Transport{DisableCompression: true}).NewClientConn(conn)}, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, err
		}
		pause(ctx, rand.N(time.Second))
	}
}

var (
	errOver    = errors.New("the time is over")
	errNoPlace = errors.New("no place for another tunnel")
)

// open opens a tunnel to the origin.
func (p *fleetPeer) open(ctx context.Context) (*http3.RequestStream, error) {
	str, err := p.connection.OpenRequestStream(ctx)
	if err != nil {
		return nil, err
	}
	_ = str.SetDeadline(time.Now().Add(fleetPatience))
	err = str.SendRequestHeader(&http.Request{
		Method: http.MethodConnect, Host: originAddr, URL: &url.URL{Host: originAddr},
		Header: http.Header{"Proxy-Authorization": {"Bearer " + fleetToken(p.number)}, "User-Agent": nil},
	})
	if err != nil {
		return nil, err
	}
	res, err := str.ReadResponse()
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		refusal := tunnel.ReadRefusal(res)
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		if refusal.Type == tunnel.LimitReached {
			return nil, fmt.Errorf("%w: %w", errNoPlace, refusal)
		}
		return nil, refusal
	}
	return str, nil
}

// transfer requests size bytes over a new tunnel. It gives up when the time is over.
func (p *fleetPeer) transfer(ctx context.Context, size int, over func() bool) error {
	str, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer tunnel.Cancel(str, http3.ErrCodeNoError)
	_, err = ask(str, size, func(n int) error {
		p.bytes.Add(int64(n))
		if over() {
			return errOver
		}
		return nil
	})
	return err
}

// ask requests size bytes of the pattern, and checks them.
func ask(str *http3.RequestStream, size int, each func(int) error) (got int, err error) {
	_ = str.SetDeadline(time.Now().Add(fleetPatience))
	if _, err := str.Write(binary.BigEndian.AppendUint32(nil, uint32(size))); err != nil {
		return 0, err
	}
	for b := make([]byte, 16<<10); got < size; {
		n, err := str.Read(b[:min(len(b), size-got, len(pattern)-got%len(pattern))])
		if at := got % len(pattern); !bytes.Equal(b[:n], pattern[at:at+n]) {
			return got, errors.New("other bytes came than were sent")
		}
		got += n
		if n > 0 { // a greedy peer's transfers may take long
			_ = str.SetDeadline(time.Now().Add(fleetPatience))
		}
		if err != nil {
			return got, fmt.Errorf("after %d of %d bytes: %w", got, size, err)
		}
		if each != nil {
			if err := each(n); err != nil {
				return got, err
			}
		}
	}
	return got, nil
}
