// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOutputs checks which lines go to stderr, which procd logs as daemon.err, and to
// stdout, which it logs as daemon.info.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	conf := gatewayConf(t, dir, freeAddress(t), "", "")
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, "gateway", "--config", conf)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	status := func() (out string) {
		t.Helper()
		for range 500 {
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
	for range 500 {
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
