// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	connectionsPerHost = 6 // as browsers, by HTTP/1.1
	chunk              = 32 << 10
	forever            = time.Hour
)

type result struct {
	Milliseconds float64 `json:"ms"`
	Objects      int     `json:"objects"`
	Bytes        int64   `json:"bytes"`
	Connections  int32   `json:"connections"`
}

// progress reports data of one object.
type progress struct {
	object int
	bytes  int64 // newly received
	done   bool
	err    error
}

// load fetches the objects from below url.
func load(ctx context.Context, objects []object, protocol, url string) (result, error) {
	// When one object fails, all others are cancelled.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// Counts connections in use: one that is dialled while another becomes free may never be used.
	var connections atomic.Int32
	var used sync.Map // by net.Conn; an idle connection counts as reused even if it was never used
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if _, again := used.LoadOrStore(info.Conn, true); !again {
			connections.Add(1)
		}
	}})
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	defer transport.CloseIdleConnections()
	parallel := len(objects)
	switch protocol {
	case "h1":
		transport.Protocols.SetHTTP1(true)
		transport.MaxConnsPerHost = connectionsPerHost
		transport.MaxIdleConnsPerHost = connectionsPerHost
		parallel = connectionsPerHost
	case "h2":
		transport.Protocols.SetHTTP2(true)
		// Requests above the server's limit wait, as in browsers.
		transport.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true}
	default:
		return result{}, fmt.Errorf("protocol %q is neither h1 nor h2", protocol)
	}

	begun := time.Now()
	events := make(chan progress)
	tell := func(p progress) error {
		select {
		case events <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s := newSchedule(objects, parallel)
	var total int64
	delayed := time.NewTimer(0)
	defer delayed.Stop()
	for {
		due := s.advance(time.Since(begun))
		for i, ok := s.next(); ok; i, ok = s.next() {
			go func() {
				err := fetch(ctx, transport, url, objects[i], func(n int64) error { return tell(progress{object: i, bytes: n}) })
				_ = tell(progress{object: i, done: true, err: err})
			}()
		}
		if s.finished() {
			return result{float64(time.Since(begun).Microseconds()) / 1e3, len(objects), total, connections.Load()}, nil
		}
		delayed.Reset(due - time.Since(begun))
		select {
		case <-delayed.C:
		case p := <-events:
			if p.err != nil {
				return result{}, fmt.Errorf("%s: %w", objects[p.object].file, p.err)
			}
			total += p.bytes
			s.note(p)
		case <-ctx.Done():
			return result{}, ctx.Err()
		}
	}
}

// fetch loads one object, and reports its bytes as they arrive.
func fetch(ctx context.Context, transport http.RoundTripper, url string, o object, came func(int64) error) error {
	file := o.file
	if file == "index.html" {
		file = "" // the gateway would answer this name with a redirect
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+file, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Priority", "u="+strconv.Itoa(o.urgency))
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	buffer := make([]byte, chunk)
	var size int64
	for {
		n, err := response.Body.Read(buffer)
		size += int64(n)
		if n > 0 {
			if err := came(int64(n)); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF && size != o.size:
			return fmt.Errorf("%d bytes came, not %d", size, o.size)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// schedule decides which request is next. It reads no clock and sends nothing.
type schedule struct {
	objects  []object
	parallel int
	received []int64
	done     []bool
	waiting  []int     // wait for other objects
	delayed  []request // wait for their time, the next one first
	ready    []int     // wait for a free slot
	running  int
	left     int
}

// request is a request for an object that is due at a time after the start.
type request struct {
	object int
	due    time.Duration
}

func newSchedule(objects []object, parallel int) *schedule {
	s := &schedule{
		objects: objects, parallel: parallel, left: len(objects),
		received: make([]int64, len(objects)), done: make([]bool, len(objects)), ready: []int{0},
	}
	for i := 1; i < len(objects); i++ {
		s.waiting = append(s.waiting, i)
	}
	return s
}

// note records progress.
func (s *schedule) note(p progress) {
	s.received[p.object] += p.bytes
	if p.done {
		s.done[p.object] = true
		s.running--
		s.left--
	}
}

// advance moves the time to now, and returns when the next request is due.
func (s *schedule) advance(now time.Duration) time.Duration {
	s.waiting = slices.DeleteFunc(s.waiting, func(i int) bool {
		o := s.objects[i]
		// An object is complete only when its end has arrived.
		come := s.done[o.parent] || o.at < s.objects[o.parent].size && s.received[o.parent] >= o.at
		if !come || slices.ContainsFunc(o.after, func(k int) bool { return !s.done[k] }) {
			return false
		}
		s.delayed = append(s.delayed, request{i, now + o.delay})
		return true
	})
	slices.SortStableFunc(s.delayed, func(a, b request) int { return cmp.Compare(a.due, b.due) })
	for len(s.delayed) > 0 && s.delayed[0].due <= now {
		s.ready = append(s.ready, s.delayed[0].object)
		s.delayed = s.delayed[1:]
	}
	if len(s.delayed) == 0 {
		return now + forever
	}
	return s.delayed[0].due
}

// next takes the most urgent ready request, and among equals the first one named, if there is a free slot.
func (s *schedule) next() (int, bool) {
	if len(s.ready) == 0 || s.running == s.parallel {
		return 0, false
	}
	slices.SortStableFunc(s.ready, func(a, b int) int { return cmp.Compare(s.objects[a].urgency, s.objects[b].urgency) })
	i := s.ready[0]
	s.ready = s.ready[1:]
	s.running++
	return i, true
}

func (s *schedule) finished() bool { return s.left == 0 }
