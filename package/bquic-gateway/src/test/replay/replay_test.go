// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const page = `["index.html",100,null,0,[],0.0,0]`
	for _, c := range []struct {
		name, objects, want string
	}{
		{"good", page + `,["1.css",20,0,50,[],1.5,0],["2.js",30,1,20,[1],0.0,3]`, ""},
		{"parent behind", page + `,["1.css",20,1,0,[],0.0,0]`, "not before it"},
		{"after behind", page + `,["1.css",20,0,0,[2],0.0,0],["2.js",30,0,0,[],0.0,3]`, "not before it"},
		{"more than there is", page + `,["1.css",20,0,101,[],0.0,0]`, "byte 101 of 100"},
		{"a field missing", page + `,["1.css",20,0,0,[],0.0]`, "not 6"},
		{"a field more", page + `,["1.css",20,0,0,[],0.0,0,0]`, "not 8"},
		{"a text for a number", page + `,["1.css","20",0,0,[],0.0,0]`, "cannot unmarshal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := parse([]byte(`{"p":[`+c.objects+`]}`), "p")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, %v, want %q", objects, err, c.want)
			}
		})
	}
	if _, err := parse([]byte(`{}`), "p"); err == nil {
		t.Error("a page that is not there")
	}
}

// Requests that wait for bytes, for the end of a parent, for other objects and for their time are sent when these have come, urgent ones first.
func TestSchedule(t *testing.T) {
	s := newSchedule([]object{
		{file: "index.html", size: 100},
		{file: "1.png", parent: 0, at: 50, urgency: 3},
		{file: "2.css", parent: 0, at: 50, urgency: 0, size: 10},
		{file: "3.png", parent: 2, at: 10, urgency: 2},
		{file: "4.js", parent: 0, at: 100, after: []int{2}, delay: 7, urgency: 1},
		{file: "5.js", parent: 0, at: 100, after: []int{2}, delay: 5, urgency: 1},
	}, 2)
	step := func(what string, now time.Duration, p *progress, sent []int, due time.Duration) {
		t.Helper()
		if p != nil {
			s.note(*p)
		}
		next := s.advance(now)
		var started []int
		for i, ok := s.next(); ok; i, ok = s.next() {
			started = append(started, i)
		}
		if !slices.Equal(started, sent) || next != due {
			t.Fatalf("%s: sent %v, the next one is due at %d; want %v, %d", what, started, next, sent, due)
		}
	}
	step("start", 0, nil, []int{0}, forever)
	step("too few bytes", 0, &progress{object: 0, bytes: 49}, nil, forever)
	step("enough, one place", 0, &progress{object: 0, bytes: 1}, []int{2}, forever)
	step("the page's end, not the others'", 1, &progress{object: 0, bytes: 50, done: true}, []int{1}, 1+forever)
	step("all bytes, not their end", 2, &progress{object: 2, bytes: 10}, nil, 2+forever)
	step("their end", 3, &progress{object: 2, done: true}, []int{3}, 8)
	step("a place, not yet time", 4, &progress{object: 1, done: true}, nil, 8)
	step("time", 8, nil, []int{5}, 10)
	step("time, no place", 10, nil, nil, 10+forever)
	step("a place", 11, &progress{object: 3, done: true}, []int{4}, 11+forever)
	s.note(progress{object: 4, done: true})
	if s.finished() {
		t.Error("finished before 5")
	}
	s.note(progress{object: 5, done: true})
	if !s.finished() {
		t.Error("not finished")
	}
}

func TestLoad(t *testing.T) {
	objects := []object{{file: "index.html", size: 5000}}
	for i := 1; i <= 20; i++ {
		objects = append(objects, object{file: fmt.Sprintf("%d.png", i), size: int64(1000 * i), at: 2000, urgency: 3})
	}
	objects = append(objects, object{file: "late.js", parent: 3, at: 3000, size: 7, after: []int{20}})
	var total int64
	for _, o := range objects {
		total += o.size
	}
	for _, c := range []struct {
		protocol    string
		major       int
		connections [2]int32
	}{
		{"h1", 1, [2]int32{2, connectionsPerHost}},
		{"h2", 2, [2]int32{1, 1}},
	} {
		t.Run(c.protocol, func(t *testing.T) {
			var mutex sync.Mutex
			var asked []string
			running, most := 0, 0
			// These two requests run at the same time, however fast the machine is.
			other := map[string]string{"1.png": "2.png", "2.png": "1.png"}
			came := map[string]func(){}
			here := map[string]chan struct{}{}
			for file := range other {
				here[file] = make(chan struct{})
				came[file] = sync.OnceFunc(func() { close(here[file]) })
			}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				file := path.Base(r.URL.Path)
				if strings.HasSuffix(r.URL.Path, "/") {
					file = "index.html"
				}
				mutex.Lock()
				asked = append(asked, file)
				running++
				most = max(most, running)
				mutex.Unlock()
				defer func() {
					mutex.Lock()
					running--
					mutex.Unlock()
				}()
				i := slices.IndexFunc(objects, func(o object) bool { return o.file == file })
				if r.ProtoMajor != c.major || i < 0 || r.Header.Get("Priority") != fmt.Sprintf("u=%d", objects[i].urgency) {
					http.Error(w, "not what was recorded", http.StatusBadRequest)
					return
				}
				if other[file] != "" {
					came[file]()
					select {
					case <-here[other[file]]:
					case <-time.After(time.Minute):
						http.Error(w, "the other one is not asked for", http.StatusGatewayTimeout)
						return
					}
				}
				_, _ = w.Write(make([]byte, objects[i].size))
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			result, err := load(t.Context(), objects, c.protocol, server.URL+"/pages/p/")
			if err != nil {
				t.Fatal(err)
			}
			if result.Objects != len(objects) || result.Bytes != total || result.Milliseconds <= 0 {
				t.Errorf("%+v, want %d objects of %d bytes", result, len(objects), total)
			}
			if result.Connections < c.connections[0] || result.Connections > c.connections[1] {
				t.Errorf("%d connections, want %v", result.Connections, c.connections)
			}
			at := func(file string) int { return slices.Index(asked, file) }
			if at("index.html") != 0 || at("late.js") < max(at("3.png"), at("20.png")) || c.protocol == "h1" && most > connectionsPerHost {
				t.Errorf("asked for %v, up to %d at once", asked, most)
			}
			short := slices.Clone(objects)
			short[5].size++
			if _, err := load(t.Context(), short, c.protocol, server.URL+"/pages/p/"); err == nil {
				t.Error("a size that is not the recorded one is no error")
			}
		})
	}
}
