// SPDX-License-Identifier: Apache-2.0

package rpcd

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// FuzzCall passes arbitrary arguments to every method, and arbitrary data from the daemon's
// status socket. The answer is always JSON.
func FuzzCall(f *testing.F) {
	f.Add("status", []byte(`{}`), []byte(`{"role":"gateway","connections":[{"closed":false,"stats":{"packets_sent":7,"smoothed_rtt_ns":1e7}}]}`))
	f.Add("connections", []byte(``), []byte(`{"connections":[{"burst":null},{"closed":true}]}`))
	f.Add("fetch", []byte(`{"url":"https://127.0.0.1/","pin":"--help","profile":"x y"}`), []byte(`[`))
	f.Add("fetch", []byte(`{"url":["https://"]}`), []byte(`{"connections":{"a":1}}`))
	f.Add("profiles", []byte(`{"ubus_rpc_session":"0"}`), []byte(`null`))
	dir := f.TempDir()
	socket := filepath.Join(dir, "s")
	conf := filepath.Join(dir, "bquic")
	text := "config gateway\n\toption enabled '1'\n\toption status_socket '" + socket + "'\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method string, args, says []byte) {
		os.Remove(socket)
		ln, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				conn.Write(says)
				conn.Close()
			}
		}()
		p := &Plugin{Config: conf, Bquic: "/bin/false"}
		answer, err := p.call(t.Context(), method, bytes.NewReader(args))
		ln.Close()
		<-ended
		if _, known := methods[method]; known != (err == nil) {
			t.Fatalf("%q: %v", method, err)
		}
		if err != nil {
			return
		}
		if _, err := json.Marshal(answer); err != nil {
			t.Fatalf("%q: %v", method, err)
		}
	})
}
