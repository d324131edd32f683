// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"bquic/internal/view"
)

func TestReport(t *testing.T) {
	relay := answering(t, `{"role":"relay","version":"1.2.3","profile":"bquic","gateway":"198.51.100.7:8443","proof":{"verdict":"faster","share":0.05,"auto":true,"days":2,
		"overall":{"carried":1240,"direct":71,"complete":{"change":-0.21,"low":-0.29,"high":-0.14}},
		"pages":{"carried":310,"direct":16,"complete":{"change":-0.1,"low":-0.2,"high":-0.05}},
		"sizes":[],"quarters":[],"clients":[{"prefix":"10.1.2.0/24","carried":1240,"direct":71,"complete":null}]}}`)
	out, errs, code := bquic(t, "report", "--config", statusConf(t, "/nonexistent", relay))
	for _, part := range []string{"Carried connections are 21 % faster (95 %: 14 to 29), 1,240 against 71, last 2 days.\n", "Page loads are 10 % faster (95 %: 5 to 20), 310 against 16.\n", "10.1.2.0/24", "\nThe relay helps here"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	if code != 0 || errs != "" {
		t.Errorf("exit code %d, %s", code, errs)
	}

	out, errs, code = bquic(t, "report", "--json", "--socket", relay)
	var e export
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 || errs != "" {
		t.Fatalf("%v, exit code %d, %s: %s", err, code, errs, out)
	}
	if e.Version != "1.2.3" || e.Profile != "bquic" || e.Overall.Carried != 1240 || len(e.Clients) != 1 || e.Clients[0].Carried != 1240 {
		t.Errorf("%+v", e)
	}
	for _, address := range []string{"10.1.2", "198.51.100"} {
		if strings.Contains(out, address) {
			t.Errorf("%s is in what is for others:\n%s", address, out)
		}
	}
	if want := `"schedulers": []`; !strings.Contains(out, want) {
		t.Errorf("no %s in\n%s", want, out)
	}
	fails(t, 1, "bquic report: no daemon answers on /nonexistent", "report", "--socket", "/nonexistent")
	fails(t, 1, "bquic report: a gateway answers, expected a relay", "report", "--socket", answering(t, `{"role":"gateway"}`))
}

func TestReportSchedulers(t *testing.T) {
	dir := t.TempDir()
	for device, told := range map[string]string{
		"phy0-ap0": `"gain":null,"contention":{"gain":{"permille":1214,"low":1120,"high":1308,"trials":6,"on":true},"rts_gain":{"permille":1032,"low":984,"high":1080,"trials":5,"on":false}}`,
		"phy1-ap0": `"gain":{"permille":206,"low":-13,"high":423,"trials":3,"on":false},"contention":null`,
		"phy2-ap0": `"gain":null,"contention":{"gain":null,"rts_gain":null}`,
	} {
		wifirrd(t, filepath.Join(dir, device+".sock"), `{"device":"`+device+`",`+told+`}`)
	}
	write(t, dir, "dead.sock", "")
	schedulers := askSchedulers(dir)
	data, err := json.Marshal(schedulers)
	const want = `[{"device":"phy0-ap0","gain":null,"contention":{"gain":{"permille":1214,"low":1120,"high":1308,"trials":6,"on":true},"rts_gain":{"permille":1032,"low":984,"high":1080,"trials":5,"on":false}}},` +
		`{"device":"phy1-ap0","gain":{"permille":206,"low":-13,"high":423,"trials":3,"on":false},"contention":{"gain":null,"rts_gain":null}},` +
		`{"device":"phy2-ap0","gain":null,"contention":{"gain":null,"rts_gain":null}}]`
	if err != nil || string(data) != want {
		t.Errorf("%v: %s", err, data)
	}
	const trials = `
  scheduler  lever           delivered with it      trials  
  phy0-ap0   larger windows  21 % more (12 to 31)   6       used
  phy0-ap0   RTS             2 % less to 8 % more   5       not used
  phy1-ap0   turns           79 % less (58 to 100)  3       not used
`
	if text := view.Trials(schedulers); text != trials {
		t.Error(text)
	}
	if text := view.Trials(schedulers[2:]); text != "" {
		t.Errorf("before the first trial: %s", text)
	}
}

// wifirrd answers at a socket as the daemon does: only to a question.
func wifirrd(t *testing.T, socket, text string) {
	t.Helper()
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if question, _ := io.ReadAll(conn); string(question) == "status" {
				_, _ = io.WriteString(conn, text+"\n")
			}
			conn.Close()
		}
	}()
}
