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
		for timeout := time.After(time.Minute); ; {
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
	reload("listen '127.", "listen '126.", "this change needs a restart")
	served("old")
}

// TestMistakePrepares checks that a configuration that is refused replaces nothing that the running daemon would read after a crash.
// Its ports would not be known as the daemon's any more, and the previous configuration would be refused, too.
func TestMistakePrepares(t *testing.T) {
	top := t.TempDir()
	file, made := top+"/bquic", top+"/made"
	prepare := func(options string, want int) string {
		t.Helper()
		text := "config gateway\n\toption enabled 1\n\toption state_dir '" + top + "/state'\n\toption status_socket '" + top + "/run/sock'\n" + options
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := bquic(t, "openwrt", "gateway", "--prepare", "--config", file, "--dir", made); code != want {
			t.Fatalf("exit code %d, want %d: %s", code, want, stderr)
		}
		var all []string
		for _, name := range []string{"conf", "fixed"} {
			data, err := os.ReadFile(filepath.Join(made, "gateway", name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
		return strings.Join(all, "\n")
	}
	before := prepare("\toption listen ':18443'\n", 0)
	for _, mistake := range []string{"certificate '" + top + "/none'\n\toption key '" + top + "/none'", "access_log '" + top + "/a\tb/c'"} {
		if after := prepare("\toption listen ':19443'\n\toption "+mistake+"\n", exitUsage); after != before {
			t.Errorf("%s: refused, but written:\n%s", mistake, after)
		}
	}
}
