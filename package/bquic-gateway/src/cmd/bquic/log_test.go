// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUnsolicited checks that clients cannot fill the log where an origin sends a body in the response to a HEAD.
func TestUnsolicited(t *testing.T) {
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	go func() {
		for {
			conn, err := origin.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				requests := bufio.NewReader(conn)
				for {
					if _, err := http.ReadRequest(requests); err != nil {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")
				}
			}()
		}
	}()
	dir, address := t.TempDir(), freeAddress()
	conf := gatewayConf(t, dir, address, "", "config site\n\toption host '*'\n\toption origin 'http://"+origin.Addr().String()+"'\n")
	var stdout bytes.Buffer
	cmd := exec.Command(binary, "gateway", "--config", conf)
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	asked := 0
	for range 3000 {
		if res, err := client.Head("https://" + address + "/"); err == nil {
			res.Body.Close()
			if asked++; asked == 10 {
				break
			}
			continue
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || asked < 10 {
		t.Error(asked, err)
	}
	if strings.Contains(stdout.String(), "Unsolicited response") {
		t.Errorf("on stdout:\n%s", &stdout)
	}
}

// TestOutputs checks which lines go to stderr, which procd logs as daemon.err, and to
// stdout, which it logs as daemon.info.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	conf := gatewayConf(t, dir, freeAddress(), "", "")
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, "gateway", "--config", conf)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	status := func() (out string) {
		t.Helper()
		for range 3000 {
			var code int
			if out, _, code = bquic(t, "status", "--json", "--socket", filepath.Join(dir, "sock")); code == 0 {
				return out
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Fatalf("the gateway does not answer: %s%s", &stdout, &stderr)
		return ""
	}
	status()
	gatewayConf(t, dir, "127.0.0.1:1", "", "") // a running gateway cannot change this
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if strings.Contains(status(), `"reload"`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	out, problems := stdout.String(), stderr.String()
	if !strings.Contains(out, "gateway ready") || strings.Contains(out, "level=WARN") {
		t.Errorf("on stdout:\n%s", out)
	}
	if !strings.Contains(problems, "needs a restart") || strings.Contains(problems, "level=INFO") {
		t.Errorf("on stderr:\n%s", problems)
	}
}

func TestByLevel(t *testing.T) {
	var information, problems bytes.Buffer
	log := slog.New(byLevel{slog.NewTextHandler(&information, nil), slog.NewTextHandler(&problems, nil)}).With("a", 1).WithGroup("g")
	log.Debug("not said")
	log.Info("said", "b", 2)
	log.Warn("warned", "b", 3)
	if s := information.String(); !strings.HasSuffix(s, "level=INFO msg=said a=1 g.b=2\n") || strings.Count(s, "\n") != 1 {
		t.Error(s)
	}
	if s := problems.String(); !strings.HasSuffix(s, "level=WARN msg=warned a=1 g.b=3\n") || strings.Count(s, "\n") != 1 {
		t.Error(s)
	}
}

func TestLibraries(t *testing.T) {
	var information bytes.Buffer
	libraries := libraries{slog.New(slog.NewTextHandler(&information, nil))}
	for _, line := range []string{"protocol error: received DATA on a HEAD request\n", "failed to sufficiently increase receive buffer size. See https://github.com/quic-go/quic-go/wiki\n"} {
		if n, err := libraries.Write([]byte(line)); n != len(line) || err != nil {
			t.Error(n, err)
		}
	}
	if s := information.String(); strings.Contains(s, "HEAD") || !strings.Contains(s, "receive buffer size") {
		t.Error(s)
	}
}
