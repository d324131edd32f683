// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
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
	fails(t, 1, "bquic report: no daemon answers on /nonexistent", "report", "--socket", "/nonexistent")
	fails(t, 1, "bquic report: a gateway answers, expected a relay", "report", "--socket", answering(t, `{"role":"gateway"}`))
}
