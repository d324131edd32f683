// SPDX-License-Identifier: Apache-2.0

package rpcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"bquic/internal/status"
)

// must ends the test when err is one.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, want, got any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func has(t *testing.T, answer map[string]any, key string) {
	t.Helper()
	if _, ok := answer[key]; !ok {
		t.Errorf("no %q in %v", key, answer)
	}
}

func contains(t *testing.T, text any, part string) {
	t.Helper()
	if s, ok := text.(string); !ok || !strings.Contains(s, part) {
		t.Errorf("no %q in %v", part, text)
	}
}

// plugin returns a Plugin whose gateway and relay answer with these JSON texts ("": no daemon).
func plugin(t *testing.T, gateway, relay string) *Plugin {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bquic")
	var text strings.Builder
	for role, answer := range map[string]string{"gateway": gateway, "relay": relay} {
		socket := filepath.Join(dir, role+".sock")
		fmt.Fprintf(&text, "config %s '%s'\n\toption status_socket '%s'\n", role, role, socket)
		if answer == "" {
			continue
		}
		s, err := status.Listen(socket)
		must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Run(ctx, status.Answers{
				status.Status:  func() any { return json.RawMessage(answer) },
				status.Summary: func() any { return map[string]any{"of": role, "live": map[string]int{"connections": 1}} },
				status.History: func() any { return map[string]string{"of": role} },
			})
		}()
		t.Cleanup(func() { cancel(); <-done })
	}
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return &Plugin{Config: file, Bquic: "/bin/false"}
}

func call(t *testing.T, p *Plugin, method, args string) map[string]any {
	t.Helper()
	var out bytes.Buffer
	must(t, p.Run(context.Background(), []string{"call", method}, strings.NewReader(args), &out))
	var answer map[string]any
	must(t, json.Unmarshal(out.Bytes(), &answer))
	return answer
}

func TestListNamesWhatCallAnswers(t *testing.T) {
	p := plugin(t, "", "")
	var out bytes.Buffer
	must(t, p.Run(context.Background(), []string{"list"}, nil, &out))
	var listed map[string]map[string]any
	must(t, json.Unmarshal(out.Bytes(), &listed))
	equal(t, len(methods), len(listed))
	for method := range listed {
		if len(call(t, p, method, "{}")) == 0 {
			t.Errorf("%s: no answer", method)
		}
	}
}

// TestDocs compares methods and their arguments with docs/fleet.md.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../../../docs/fleet.md")
	must(t, err)
	documented := make(map[string]map[string]any)
	// The first table has some of the methods, too; the second one has the arguments.
	for _, row := range regexp.MustCompile("(?m)^\\| `ubus call bquic (\\w+)` \\| ([^|]*)\\|").FindAllStringSubmatch(string(doc), -1) {
		documented[row[1]] = make(map[string]any)
		for _, argument := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			documented[row[1]][argument[1]] = ""
		}
	}
	equal(t, methods, documented)
}

func TestHistory(t *testing.T) {
	answer := call(t, plugin(t, "{}", ""), "history", "{}")
	equal(t, any("gateway"), answer["gateway"].(map[string]any)["of"])
	relay, there := answer["relay"]
	equal(t, true, there)
	equal(t, nil, relay)
}

func TestStatus(t *testing.T) {
	st := call(t, plugin(t, `{"connections":[{}]}`, ""), "status", "")
	equal(t, any(map[string]any{"of": "gateway", "live": map[string]any{"connections": 1.0}}), st["gateway"])
	equal(t, nil, st["relay"])
}

// TestStatusOfOff has daemons that do not answer, with the same file as the init script.
func TestStatusOfOff(t *testing.T) {
	for text, off := range map[string][]any{
		"\n":                                   {"gateway", "relay"},
		"":                                     {}, // uci had no room to write it
		"config relay\n\toption enabled '1'\n": {"gateway"},
		"config gateway\n\toption enabled 'on'\nconfig relay\n\toption enabled '0'\n":           {"relay"},
		"config gateway\n\toption enabled '1'\nconfig relay\n\toption enabled 'true'\n":         {},
		"config gateway\n\toption enabled '0'\nconfig relay\n\toption enabled '0'\noption x 'y": {}, // perhaps what follows switches one on
	} {
		p := plugin(t, "", "")
		must(t, os.WriteFile(p.Config, []byte(text), 0o600))
		equal(t, any(off), call(t, p, "status", "")["off"])
	}
	p := plugin(t, "", "")
	p.Config += ".missing"
	equal(t, any([]any{"gateway", "relay"}), call(t, p, "status", "")["off"])
}

// A daemon that answers nonsense has no connections.
func TestConnectionsOfNonsense(t *testing.T) {
	for _, text := range []string{`[]`, `"x"`, `3`, `null`, `{"connections":7}`, `{"connections":null}`} {
		equal(t, any([]any{}), call(t, plugin(t, text, text), "connections", "")["gateway"])
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"id":1},`, 1000), ",")
	answer := call(t, plugin(t, `{"connections":[`+many+`]}`, ""), "connections", "")
	equal(t, maxConnections, len(answer["gateway"].([]any)))
	equal(t, []any{}, answer["relay"])
}

func TestCheck(t *testing.T) {
	p := plugin(t, "", "")
	equal(t, true, call(t, p, "check", "")["ok"])
	must(t, os.WriteFile(p.Config, []byte("config gateway 'g'\n\toption listen '$(id)\"<b>'\n"), 0o600))
	answer := call(t, p, "check", "")
	equal(t, false, answer["ok"])
	m := answer["mistakes"].([]any)[0].(map[string]any)
	equal(t, 2.0, m["line"])
	equal(t, "listen", m["option"])
	contains(t, m["text"], "<b>")
	// A mistake that only the start of the daemons would show.
	must(t, os.WriteFile(p.Config, []byte("config gateway 'g'\n"), 0o600))
	p.Check = func(file string) error {
		_, err := os.Stat(file + ".key")
		return errors.Join(fmt.Errorf("gateway.key: %w", err), errors.New("relay.ca: none"))
	}
	answer = call(t, p, "check", "")
	equal(t, false, answer["ok"])
	contains(t, answer["mistakes"].([]any)[0].(map[string]any)["text"], "gateway.key: stat ")
	equal(t, "relay.ca: none", answer["mistakes"].([]any)[1].(map[string]any)["text"])
	p.Config += ".missing"
	contains(t, call(t, p, "check", "")["mistakes"].([]any)[0].(map[string]any)["text"], "does not exist")
}

func TestProfiles(t *testing.T) {
	p := plugin(t, "", "")
	must(t, os.WriteFile(p.Config, []byte("config profile 'ours'\n\toption base 'bquic'\n\toption ack_packets '20'\n"), 0o600))
	answer := call(t, p, "profiles", "")
	byName := make(map[string]map[string]any)
	for _, x := range answer["profiles"].([]any) {
		byName[x.(map[string]any)["name"].(string)] = x.(map[string]any)
	}
	equal(t, true, byName["standard"]["builtin"])
	equal(t, false, byName["ours"]["builtin"])
	equal(t, "20", byName["ours"]["values"].(map[string]any)["ack_packets"])
	equal(t, "2", answer["stock"].(map[string]any)["ack_packets"])
}

// The arguments reach the command as words; a script in place of bquic shows them.
func TestFetchArguments(t *testing.T) {
	p := plugin(t, "", "")
	dir := t.TempDir()
	p.Bquic = filepath.Join(dir, "bquic")
	words := filepath.Join(dir, "words")
	must(t, os.WriteFile(p.Bquic, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >'"+words+"'\necho '{\"mbps\":1}'\n"), 0o700))
	hostile := `https://x/';$(touch ` + dir + `/x)`
	args, _ := json.Marshal(map[string]string{"url": hostile, "pin": "`id`", "profile": "--insecure"})
	equal(t, map[string]any{"mbps": 1.0}, call(t, p, "fetch", string(args))["result"])
	got, err := os.ReadFile(words)
	must(t, err)
	contains(t, string(got), "\n"+hostile+"\n")
	contains(t, string(got), "\n--pin=`id`\n--profile=--insecure\n")
	_, text, _ := strings.Cut(string(got), "\n--timeout=")
	text, _, _ = strings.Cut(text, "\n")
	if limit, err := time.ParseDuration(text); err != nil || limit <= 0 || limit+2*time.Second >= 20*time.Second {
		t.Errorf("--timeout=%s: LuCI has given up by then", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("the URL was executed")
	}

	for _, args := range []string{``, `[]`, `{"url":3}`, `{"url":"http://x/"}`, `{"url":"--help"}`} {
		has(t, call(t, p, "fetch", args), "error")
	}
	p.Bquic = "/bin/false"
	equal(t, "exit status 1", call(t, p, "fetch", string(args))["error"])
}

func TestUnknown(t *testing.T) {
	p := plugin(t, "", "")
	if err := p.Run(context.Background(), []string{"call", "x"}, nil, nil); !errors.Is(err, errMethod) {
		t.Error(err)
	}
	if p.Run(context.Background(), nil, nil, nil) == nil {
		t.Error("no arguments are accepted")
	}
}
