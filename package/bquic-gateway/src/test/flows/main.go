// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"bquic/internal/processor"
	"bquic/internal/proof"
	"bquic/internal/tunnel"
)

func main() {
	listen := flag.String("listen", "", "`address` that clients connect to")
	to := flag.String("to", "", "`address` of the server")
	delay := flag.Duration("delay", 0, "by which the server's answers come later")
	idle := flag.Duration("idle", 0, "after which the server closes a connection without data; 0: never")
	flag.Parse()
	if err := run(*listen, *to, *delay, *idle); err != nil {
		fmt.Fprintln(os.Stderr, "flows:", err)
		os.Exit(1)
	}
}

// A record describes a connection that has ended.
type record struct {
	Start   float64 `json:"start"`   // s since 1970
	Port    int     `json:"port"`    // the client's
	Session int     `json:"session"` // the same for flows that the relay groups together
	Class   string  `json:"class"`   // by the relay's tree
	// Flow has the bytes of client and server, their packets, and how long the client waited, in s.
	Flow [5]float64 `json:"flow"`
}

func run(listen, to string, delay, idle time.Duration) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer l.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
		l.Close()
	}()
	fmt.Println("{}")          // now it listens
	var mu, joining sync.Mutex // of the output, and of the sessions
	var wg sync.WaitGroup
	var sessions proof.Sessions
	numbers := make(map[*proof.Session]int)
	var hand atomic.Uint32
	go func() {
		for range time.Tick(processor.Interval) {
			hand.Add(1)
		}
	}()
	for {
		client, err := l.Accept()
		if err != nil {
			select {
			case <-ended:
				wg.Wait()
				return nil
			default:
				return fmt.Errorf("cannot accept a connection: %w", err)
			}
		}
		now, from := time.Now(), client.RemoteAddr().(*net.TCPAddr).AddrPort()
		joining.Lock()
		sessions.Age(now)
		session := sessions.Join(now, from.Addr(), client.LocalAddr().(*net.TCPAddr).AddrPort().Addr(), func() proof.Ticket { return proof.Ticket{Measured: true} })
		if _, known := numbers[session]; !known {
			numbers[session] = len(numbers) + 1
		}
		number := numbers[session]
		timing := tunnel.NewTiming(&hand, now, func(from, to time.Time) {
			joining.Lock()
			defer joining.Unlock()
			session.Waited(from, to)
		})
		session.Open(func() time.Duration { return time.Duration(timing.Idle()) * processor.Interval })
		joining.Unlock()
		wg.Go(func() {
			r, ok := carry(client.(*net.TCPConn), to, delay, idle, now, timing)
			r.Port, r.Session = int(from.Port()), number
			if line, err := json.Marshal(r); ok && err == nil {
				mu.Lock()
				defer mu.Unlock()
				fmt.Printf("%s\n", line)
			}
		})
	}
}

// carry splices a connection to the server.
func carry(client *net.TCPConn, to string, delay, idle time.Duration, begin time.Time, timing *tunnel.Timing) (r record, ok bool) {
	server, err := net.Dial("tcp", to)
	if err != nil {
		tunnel.Reset(client)
		return r, false
	}
	defer server.Close()
	_ = tunnel.SpliceTimed(client, nil, newLate(server.(*net.TCPConn), delay, idle), new(tunnel.Bytes), timing,
		func() bool { return false }, nil)
	c := timing.Counts()
	bytes, _, wait, ok := timing.Result()
	if !ok || bytes == 0 {
		return r, false
	}
	flow := [5]float64{float64(c.ClientBytes), float64(c.ServerBytes), float64(c.ClientPackets), float64(c.ServerPackets), float64(wait.Milliseconds()) / 1e3}
	return record{Start: float64(begin.UnixMicro()) / 1e6, Class: proof.Flow(c).Class().String(), Flow: flow}, true
}
