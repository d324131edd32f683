// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReload changes a running gateway's file.
func TestReload(t *testing.T) {
	root := t.TempDir()
	for _, site := range []string{"old", "new"} {
		if err := os.Mkdir(filepath.Join(root, site), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, site), "f", site)
	}
	site := func(name string) string {
		return fmt.Sprintf("config site 's'\n\tlist host '*'\n\toption root '%s/%s'\n", root, name)
	}
	d := startGateway(t, "", site("old"))
	text, err := os.ReadFile(d.conf)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(old, new, want string) {
		t.Helper()
		changed := strings.Replace(string(text), old, new, 1)
		if changed == string(text) {
			t.Fatalf("no %q in the configuration", old)
		}
		if err := os.WriteFile(d.conf, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		var seen []string
		for timeout := time.After(20 * time.Second); ; {
			select {
			case line, ok := <-d.log:
				if strings.Contains(line, want) {
					return
				}
				if seen = append(seen, line); ok {
					continue
				}
			case <-timeout:
			}
			t.Fatalf("not logged: %s\nlogged: %q", want, seen)
		}
	}
	served := func(want string) {
		t.Helper()
		if out, errs, code := bquic(t, "fetch", "--pin", d.pin, "-o", "-", d.url+"/f"); code != 0 || out != want {
			t.Errorf("got %q, want %q; exit code %d\n%s", out, want, code, errs)
		}
	}
	served("old")
	reload("/old'", "/new'", "configuration reloaded")
	served("new")
	reload("option enabled '1'", "option enabled '1'\n\toption lisen 'x'", d.conf+":3: gateway.lisen: unknown option")
	served("new")
	// By the file with the mistake: it still names the socket.
	if out, errs, code := bquic(t, "status", "--config", d.conf); code != 0 || !strings.Contains(out, ":3: gateway.lisen: unknown option") {
		t.Errorf("status: %d\n%s\n%s", code, out, errs)
	}
	reload("option enabled '1'", "option enabled '1'\n\toption certificate '/none'\n\toption key '/none'", "no such file or directory")
	reload("option enabled '1'", "option enabled '0'", "the gateway is not enabled")
	served("new")
	reload("127.0.0.1:", "127.0.0.2:", "this change needs a restart")
	served("old")
}
