// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A bed is four network namespaces in a row:
//
//	phone --- node (relay) --- gateway --- origin
type bed struct {
	dir            string
	namespaces     []string
	gateway, relay *daemon
	children       []*exec.Cmd
}

const (
	gatewayAddr = "10.78.0.2:8443"
	originAddr  = "203.0.113.2:7000" // echoes
	token       = "correct-horse"
)

func (b *bed) ns(name string) string { return fmt.Sprintf("bquic-%s-%d", name, os.Getpid()) }

func ip(args string) error {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %s", args, strings.TrimSpace(string(out)))
	}
	return nil
}

// newBed makes the namespaces, and links without a bottleneck. Close removes them.
func newBed() (_ *bed, err error) {
	b := new(bed)
	if b.dir, err = os.MkdirTemp("", "bquic-stress-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	for _, name := range []string{"phone", "node", "gateway", "origin"} {
		if err := ip("netns add " + b.ns(name)); err != nil {
			return nil, err
		}
		b.namespaces = append(b.namespaces, b.ns(name))
		if err := ip("-n " + b.ns(name) + " link set lo up"); err != nil {
			return nil, err
		}
	}
	for _, l := range []struct{ a, aAddr, b, bAddr string }{
		{"phone", "10.77.0.2/24", "node", "10.77.0.1/24"},
		{"node", "10.78.0.1/24", "gateway", "10.78.0.2/24"},
		{"gateway", "203.0.113.1/24", "origin", "203.0.113.2/24"},
	} {
		err = errors.Join(
			ip(fmt.Sprintf("link add to-%s netns %s type veth peer name to-%s netns %s", l.b, b.ns(l.a), l.a, b.ns(l.b))),
			ip(fmt.Sprintf("-n %s addr add %s dev to-%s", b.ns(l.a), l.aAddr, l.b)),
			ip(fmt.Sprintf("-n %s addr add %s dev to-%s", b.ns(l.b), l.bAddr, l.a)),
			ip(fmt.Sprintf("-n %s link set to-%s up", b.ns(l.a), l.b)),
			ip(fmt.Sprintf("-n %s link set to-%s up", b.ns(l.b), l.a)))
		if err != nil {
			return nil, err
		}
	}
	for _, route := range []string{"phone route add default via 10.77.0.1", "node route add default via 10.78.0.2",
		"gateway route add 10.77.0.0/24 via 10.78.0.1", "origin route add default via 203.0.113.1"} {
		name, args, _ := strings.Cut(route, " ")
		if err := ip("-n " + b.ns(name) + " " + args); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"node", "gateway"} {
		if err := b.command(name, "sysctl", "-qw", "net.ipv4.ip_forward=1").Run(); err != nil {
			return nil, fmt.Errorf("sysctl: %w", err)
		}
	}
	return b, nil
}

// medium replaces the link between node and gateway by an emulated hop of 802.11n (lab/wifi).
func (b *bed) medium(ctx context.Context, binary string) error {
	if err := ip("-n " + b.ns("node") + " link del to-gateway"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, "--hops", "1", "--tap", b.ns("node")+"/to-gateway", "--tap", b.ns("gateway")+"/to-node")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends with its input
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("the medium: %w", err)
	}
	b.children = append(b.children, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, `"ready"`) {
		return fmt.Errorf("the medium says %q, not that it is ready (%v)", line, err)
	}
	go io.Copy(io.Discard, out)
	for _, args := range []string{
		b.ns("node") + " addr add 10.78.0.1/24 dev to-gateway", b.ns("node") + " link set to-gateway up",
		b.ns("gateway") + " addr add 10.78.0.2/24 dev to-node", b.ns("gateway") + " link set to-node up",
		b.ns("node") + " route add default via 10.78.0.2", b.ns("gateway") + " route add 10.77.0.0/24 via 10.78.0.1",
	} {
		if err := ip("-n " + args); err != nil {
			return err
		}
	}
	return nil
}

// Close stops all processes in the bed and removes it.
func (b *bed) Close() {
	for _, c := range b.children {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	b.stopDaemons()
	for _, ns := range b.namespaces {
		if err := ip("netns del " + ns); err != nil {
			fmt.Fprintln(os.Stderr, "stress:", err)
		}
	}
	os.RemoveAll(b.dir)
}

func (b *bed) stopDaemons() {
	for _, d := range []*daemon{b.relay, b.gateway} {
		if d != nil {
			d.stop()
		}
	}
	b.relay, b.gateway = nil, nil
}

// command returns a command in a namespace. It ends with this process.
func (b *bed) command(name string, argv ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", b.ns(name)}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	return cmd
}

// start runs another role of this program in a namespace until Close.
func (b *bed) start(name string, args ...string) error {
	cmd := b.command(name, append([]string{os.Args[0]}, args...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	b.children = append(b.children, cmd)
	return nil
}

// startGateway starts a gateway with a site of files, for relays with any profile.
func (b *bed) startGateway(ctx context.Context, bquic, profile, more string) (err error) {
	root := filepath.Join(b.dir, "site")
	err = errors.Join(os.MkdirAll(root, 0o755), sparse(filepath.Join(root, "big"), 1<<30),
		os.WriteFile(filepath.Join(root, "page"), garbage(100<<10), 0o644))
	if err != nil {
		return err
	}
	b.gateway, err = startDaemon(ctx, b.ns("gateway"), b.dir, bquic, "gateway", fmt.Sprintf(`
config gateway
	option enabled '1'
	option listen ':8443'
	option state_dir '%s'
	option token '%s'
	list mesh '10.0.0.0/8'
	option mesh_profile '%s'
	option status_socket '%s/gateway.sock'
	option log_level 'warn'
%s
config site
	list host '*'
	option root '%s'
`, b.dir, token, profile, b.dir, more, root))
	return err
}

// startRelay starts a relay, and returns when it takes connections.
func (b *bed) startRelay(ctx context.Context, bquic, profile string) (err error) {
	var pin struct {
		Pin string `json:"pin"`
	}
	if err := b.gateway.read(&pin); err != nil {
		return err
	}
	b.relay, err = startDaemon(ctx, b.ns("node"), b.dir, bquic, "relay", fmt.Sprintf(`
config relay
	option enabled '1'
	option gateway '%s'
	option pin '%s'
	option token '%s'
	option profile '%s'
	list interface 'to-phone'
	option status_socket '%s/relay.sock'
	option cpu_share '0'
	option control_share '0'
	option log_level 'warn'
`, gatewayAddr, pin.Pin, token, profile, b.dir))
	if err != nil {
		return err
	}
	return until(ctx, "the relay to take connections", func() bool {
		s, err := b.relay.status()
		return err == nil && s.State == "up" && s.Taking
	})
}

// until waits for a condition, for at most two minutes.
func until(ctx context.Context, what string, is func() bool) error {
	for deadline := time.Now().Add(2 * time.Minute); !is(); pause(ctx, 50*time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}
