// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/cert"
	"bquic/internal/config"
	"bquic/internal/gateway"
	"bquic/internal/profile"
	"bquic/internal/relay"
	"bquic/internal/tunnel"
)

// The tests run in four network namespaces:
//
//	phone --- node (relay) --- gateway --- origin
//
// Relay and gateway are separate processes, so that they can be killed: this test binary in
// another role. Phone and origin are sockets of the test. The origin tells from the source address
// how a connection reached it.
const (
	token = "correct-horse"
	// patience is the timeout for events that must happen eventually.
	patience = 90 * time.Second
	// lingerForCoverage is how long a process has to write what has run.
	lingerForCoverage = 15 * time.Second

	phone4, phone6     = "10.77.0.2", "fd77::2"
	node4, node6       = "10.78.0.1", "fd78::1"
	gateway4, gateway6 = "10.78.0.2", "fd78::2"
	exit4, exit6       = "203.0.113.1", "2001:db8:77::1" // the gateway, seen from the origin
	moved4, moved6     = "203.0.113.7", "2001:db8:77::7" // another address of the gateway's
	origin4, origin6   = "203.0.113.2", "2001:db8:77::2"
)

// How a connection reached the origin.
var route = map[string]string{
	phone4: "forwarded", phone6: "forwarded", // by the kernel, untouched
	node4: "direct", node6: "direct", // by the relay
	dumb4: "direct", dumb6: "direct",
	exit4: "carried", exit6: "carried", // through the gateway
	moved4: "carried", moved6: "carried",
}

func TestMain(m *testing.M) {
	if r := os.Getenv("BQUIC_TEST_ROLE"); r != "" {
		if err := play(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		flag.Parse()
		if coverageDir() == "" {
			return
		}
		flag.Set("test.run", "^$") // no test: m.Run then writes what has run
	} else {
		removeStale()
	}
	os.Exit(m.Run())
}

// removeStale removes the namespaces of runs that were killed or ended by Ctrl-C. Their processes have ended with them.
func removeStale() {
	names, _ := filepath.Glob("/run/netns/bquic-*-*-*")
	for _, name := range names {
		name = filepath.Base(name)
		if _, err := os.Stat("/proc/" + strings.Split(name, "-")[1]); errors.Is(err, fs.ErrNotExist) {
			exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

// TestRemoveStale has what a killed run and one that goes on have made.
func TestRemoveStale(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for pid, stays := range map[int]bool{dead.Process.Pid: false, os.Getpid(): true} {
		name := fmt.Sprintf("bquic-%d-0-stale", pid)
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		removeStale()
		if _, err := os.Stat("/run/netns/" + name); (err == nil) != stays {
			t.Errorf("of the process %d: %v", pid, err)
		}
		exec.Command("ip", "netns", "del", name).Run()
	}
}

// coverageDir is where scripts/test --coverage wants what has run, "" in other runs. A killed process writes
// nothing, so the tests' processes then end by SIGTERM where a test does not say how.
func coverageDir() string { return flag.Lookup("test.gocoverdir").Value.String() }

// A role is the task of another process of the test.
type role struct {
	Relay   *relay.Config
	Gateway string   // UCI file
	Origins []string // addresses that origins listen on
}

// figures is a process's answer to each line that it reads. For a relay, the line can be a
// relay.Config to apply.
type figures struct {
	Relay      *relay.Status
	Gateway    *tunnel.Stats
	Goroutines int
	Files      int
}

// play runs a role until SIGTERM.
func play(encoded string) error {
	var r role
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	out := json.NewEncoder(os.Stdout)
	apply := func([]byte) {}
	answer := func(get func(*figures)) {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if len(lines.Bytes()) > 0 {
				apply(lines.Bytes())
			}
			fds, _ := os.ReadDir("/proc/self/fd")
			f := figures{Goroutines: runtime.NumGoroutine(), Files: len(fds)}
			get(&f)
			out.Encode(f)
		}
	}

	if r.Relay != nil {
		rel, err := relay.New(*r.Relay, logger)
		if err != nil {
			return err
		}
		apply = func(line []byte) {
			var next relay.Config
			err := json.Unmarshal(line, &next)
			if err == nil {
				err = rel.Apply(next)
			}
			logger.Info("applied", "error", err)
		}
		go func() {
			<-rel.Ready()
			answer(func(f *figures) {
				status := rel.Status()
				f.Relay = &status
			})
		}()
		return rel.Run(ctx)
	}

	if r.Origins != nil {
		for _, address := range r.Origins {
			if err := unendingOrigin(address); err != nil {
				return err
			}
		}
		go answer(func(*figures) {})
		<-ctx.Done()
		return nil
	}

	cfg, err := config.Parse("gateway", []byte(r.Gateway))
	if err != nil {
		return err
	}
	server, err := gateway.New(cfg.Gateway, "test", logger)
	if err != nil {
		return err
	}
	go func() {
		<-server.Ready()
		answer(func(f *figures) { f.Gateway = server.Status().Tunnels })
	}()
	return server.Run(ctx)
}

// unendingOrigin reads one byte from each client, answers it, and sends forever.
func unendingOrigin(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				conn.Read(make([]byte, 1))
				for b := []byte("answer"); ; time.Sleep(10 * time.Millisecond) {
					if _, err := conn.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return nil
}

// A process runs a role in a namespace.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	out   *json.Decoder
	log   logBuffer
	ended chan error
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A mesh is a set of namespaces, and the key of its gateway.
type mesh struct {
	t     *testing.T
	ns    map[string]string
	state string // directory of the gateway's certificate
	pin   cert.Pin
}

var meshes atomic.Int32

func newMesh(t *testing.T) *mesh {
	t.Helper()
	m := newNamespaces(t, "phone", "node", "gateway", "origin")
	m.link("phone", "lan", phone4+"/24 "+phone6+"/64", "node", "br-lan", "10.77.0.1/24 fd77::1/64")
	m.ip("phone", "route add default via 10.77.0.1", "-6 route add default via fd77::1")
	m.linkOrigin("node", "mesh")
	return m
}

// linkOrigin links the clients' router to the gateway, by this device of its own, and the gateway to the origin.
func (m *mesh) linkOrigin(router, device string) {
	m.t.Helper()
	m.link(router, device, node4+"/24 "+node6+"/64", "gateway", "mesh", gateway4+"/24 "+gateway6+"/64")
	m.link("gateway", "wan", exit4+"/24 "+exit6+"/64", "origin", "eth0", origin4+"/24 "+origin6+"/64")
	m.ip(router, "route add default via "+gateway4, "-6 route add default via "+gateway6)
	m.ip("gateway", "route add 10.77.0.0/24 via "+node4, "-6 route add fd77::/64 via "+node6)
	m.ip("origin", "route add default via "+exit4, "-6 route add default via "+exit6)
}

// newNamespaces makes namespaces without links, and the gateway's key.
func newNamespaces(t *testing.T, names ...string) *mesh {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	m := &mesh{t: t, ns: map[string]string{}}
	id := meshes.Add(1)
	for _, name := range names {
		m.ns[name] = fmt.Sprintf("bquic-%d-%d-%s", os.Getpid(), id, name)
		m.ip("", "netns add "+m.ns[name])
		t.Cleanup(func() { exec.Command("ip", "netns", "del", m.ns[name]).Run() })
		m.ip(name, "link set lo up")
		for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := m.in(name, func() error { return os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	// As the package's init script does.
	if err := m.in("node", func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_early_demux", []byte("0"), 0) }); err != nil {
		t.Fatal(err)
	}
	m.state = t.TempDir()
	made, _, err := cert.LoadOrCreate(m.state, []string{"gateway"})
	if err != nil {
		t.Fatal(err)
	}
	m.pin = cert.PinOf(made.Leaf)
	return m
}

// run runs a command in a namespace and returns its output.
func (m *mesh) run(name string, args ...string) string {
	m.t.Helper()
	if name != "" {
		args = append([]string{"ip", "netns", "exec", m.ns[name]}, args...)
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ip runs ip commands, all of the same IP version in one batch. A command for IPv6 begins with -6:
// "-6 route ...".
func (m *mesh) ip(name string, commands ...string) {
	m.t.Helper()
	for len(commands) > 0 {
		six := strings.HasPrefix(commands[0], "-6 ")
		n := slices.IndexFunc(commands, func(c string) bool { return strings.HasPrefix(c, "-6 ") != six })
		if n < 0 {
			n = len(commands)
		}
		args := []string{"-batch", "-"}
		if six {
			args = append([]string{"-6"}, args...)
		}
		if name != "" {
			args = append([]string{"-n", m.ns[name]}, args...)
		}
		cmd := exec.Command("ip", args...)
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(commands[:n], "\n"), "-6 ", "") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			m.t.Fatalf("ip %s, of %q: %v: %s", strings.Join(args, " "), commands[:n], err, out)
		}
		commands = commands[n:]
	}
}

func (m *mesh) link(a, adev, aaddrs, b, bdev, baddrs string) {
	m.t.Helper()
	m.ip("", fmt.Sprintf("link add %s netns %s type veth peer name %s netns %s", adev, m.ns[a], bdev, m.ns[b]))
	for _, end := range [][3]string{{a, adev, aaddrs}, {b, bdev, baddrs}} {
		var commands []string
		for addr := range strings.FieldsSeq(end[2]) {
			c := "addr add " + addr + " dev " + end[1]
			if strings.Contains(addr, ":") {
				c += " nodad"
			}
			commands = append(commands, c)
		}
		m.ip(end[0], append(commands, "link set "+end[1]+" up")...)
	}
	// The kernel answers neighbours' solicitations when it has joined the group of an address. It does so after link set, and seconds after if
	// it is busy with other namespaces.
	for _, end := range [][3]string{{a, adev, aaddrs}, {b, bdev, baddrs}} {
		for addr := range strings.FieldsSeq(end[2]) {
			if ip := netip.MustParsePrefix(addr).Addr(); ip.Is6() {
				m.eventually("the group of "+addr, func() bool { return m.joined(end[0], end[1], ip) })
			}
		}
	}
}

// joined reports whether a device has joined the solicited-node group of an address (RFC 4291, section 2.7.1).
func (m *mesh) joined(name, device string, addr netip.Addr) bool {
	var groups []byte
	if err := m.in(name, func() (err error) {
		groups, err = os.ReadFile("/proc/thread-self/net/igmp6")
		return err
	}); err != nil {
		m.t.Fatal(err)
	}
	group := fmt.Sprintf("ff0200000000000000000001ff%x", addr.AsSlice()[13:])
	for line := range strings.Lines(string(groups)) {
		if words := strings.Fields(line); words[1] == device && words[2] == group {
			return true
		}
	}
	return false
}

// slow limits the link between node and gateway to a rate (as tc writes it) each way: without a limit, it
// is as fast as the processors.
func (m *mesh) slow(rate string) {
	m.t.Helper()
	for _, end := range []string{"gateway", "node"} {
		m.run(end, "tc", "qdisc", "add", "dev", "mesh", "root", "tbf", "rate", rate, "burst", "20kb", "latency", "60ms")
	}
}

// in calls f with the calling thread in a namespace. Sockets that f opens stay in the namespace.
func (m *mesh) in(name string, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		m.t.Error(err)
		return err
	}
	defer home.Close()
	ns, err := os.Open("/run/netns/" + m.ns[name])
	if err != nil {
		m.t.Error(err)
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		m.t.Error(err)
		return err
	}
	err = f()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err) // the thread stays locked and is lost
	}
	runtime.UnlockOSThread()
	return err
}

func (m *mesh) dial(target string) (*net.TCPConn, error) {
	var conn net.Conn
	err := m.in("phone", func() (err error) {
		conn, err = net.DialTimeout("tcp", target, patience)
		return err
	})
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn), nil
}

// listen accepts connections in the origin's namespace.
func (m *mesh) listen(addr string, handle func(*net.TCPConn)) string {
	m.t.Helper()
	var l net.Listener
	if err := m.in("origin", func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	}); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				conn.SetDeadline(time.Now().Add(patience))
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// greet listens at an origin that tells each client how its connection arrived.
func (m *mesh) greet(addr string) string {
	m.t.Helper()
	return m.listen(addr, func(conn *net.TCPConn) {
		io.WriteString(conn, wayOf(conn))
	})
}

func wayOf(conn *net.TCPConn) string {
	return route[conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String()]
}

// way returns how a connection reached the target.
func (m *mesh) way(target string) string {
	conn, err := m.dial(target)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	way, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(way)
}

// wayBy returns how a relay's connections reach the target while its gateway answers in time. On a busy machine an answer may be late, and the
// connection goes direct, which says nothing about the relay; wayBy then tries again.
func (m *mesh) wayBy(node *process, target string) (way string) {
	m.t.Helper()
	return node.tries(func() (string, bool) {
		late := node.figures().Relay.Late
		way := m.way(target)
		return way, node.figures().Relay.Late != late
	})
}

// tries returns the way of the first attempt that says something about a relay: neither was the gateway's answer late, nor had the relay given the
// gateway up because of late answers.
func (p *process) tries(attempt func() (way string, late bool)) (way string) {
	p.t.Helper()
	for range 10 {
		p.await("a gateway", func(f figures) bool { return f.Relay.State == relay.StateUp })
		begun := time.Now()
		var late bool
		way, late = attempt()
		now := p.figures().Relay
		if way == "carried" || !late && now.State == relay.StateUp && now.Since.Before(begun.Truncate(time.Second)) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return way
}

// start runs a role in a namespace, and returns when the process answers.
func (m *mesh) start(name string, r role) *process {
	m.t.Helper()
	p := m.spawn(name, r)
	p.figures()
	return p
}

func (m *mesh) spawn(name string, r role) *process {
	m.t.Helper()
	encoded, err := json.Marshal(r)
	if err != nil {
		m.t.Fatal(err)
	}
	p := &process{t: m.t, ended: make(chan error, 1)}
	p.cmd = exec.Command("ip", "netns", "exec", m.ns[name], "/proc/self/exe")
	exe, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	p.cmd.Args[4] = exe
	if dir := coverageDir(); dir != "" {
		p.cmd.Args = append(p.cmd.Args, "-test.gocoverdir="+dir)
	}
	p.cmd.Env = append(os.Environ(), "BQUIC_TEST_ROLE="+string(encoded))
	p.cmd.Stderr = &p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	p.out = json.NewDecoder(stdout)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	m.t.Cleanup(func() {
		if coverageDir() != "" {
			p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case err := <-p.ended:
				p.ended <- err
			case <-time.After(lingerForCoverage):
			}
		}
		p.signal(syscall.SIGKILL)
		if m.t.Failed() {
			m.t.Logf("log of the %s:\n%s", name, p.log.String())
		}
	})
	return p
}

// apply changes a relay's configuration.
func (p *process) apply(c relay.Config) {
	p.t.Helper()
	encoded, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.ask(string(encoded))
}

func (p *process) figures() figures { return p.ask("") }

func (p *process) ask(line string) figures {
	p.t.Helper()
	var f figures
	io.WriteString(p.stdin, line+"\n")
	if err := p.out.Decode(&f); err != nil {
		p.t.Fatalf("no answer (%v): %s", err, p.log.String())
	}
	return f
}

// signal sends a signal that ends the process, and returns how the process ended.
func (p *process) signal(s syscall.Signal) error {
	p.cmd.Process.Signal(s)
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(patience):
		p.t.Error("the process did not end")
		return nil
	}
}

func (m *mesh) startGateway() *process { return m.startGatewayAt(443) }

// startGatewayAt starts a gateway on a port. more are further lines of the gateway's section.
func (m *mesh) startGatewayAt(port int, more ...string) *process {
	m.t.Helper()
	return m.startGatewayIn("gateway", port, more...)
}

func (m *mesh) startGatewayIn(namespace string, port int, more ...string) *process {
	m.t.Helper()
	return m.start(namespace, role{Gateway: fmt.Sprintf(`
config gateway
	option enabled '1'
	option listen ':%d'
	option state_dir '%s'
	option status_socket '%s/gateway-%d.sock'
	option token '%s'
	option mesh_profile 'bquic'
	list mesh '10.0.0.0/8'
	list mesh 'fd00::/8'
%s`, port, m.state, m.state, port, token, strings.Join(more, "\n"))})
}

func (m *mesh) config(mode string) relay.Config {
	m.t.Helper()
	burst, err := profile.NewSet().Get(profile.BQUIC)
	if err != nil {
		m.t.Fatal(err)
	}
	return relay.Config{
		Gateways: relay.InOrder(gateway4 + ":443"), Pins: []cert.Pin{m.pin}, Token: token,
		Fixed:      relay.Fixed{Mode: mode, Bridge: relay.BridgeAuto, Connections: 1}, // many tests look at one session
		Interfaces: []string{"br-lan"}, Burst: burst.Burst,
	}
}

// startRelay starts a relay and waits until it takes connections.
func (m *mesh) startRelay(c relay.Config) *process {
	m.t.Helper()
	p := m.start("node", role{Relay: &c})
	p.await("the relay to take connections", func(f figures) bool { return f.Relay.Taking })
	return p
}

// await waits until the process's figures satisfy ok.
func (p *process) await(what string, ok func(figures) bool) figures {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		f := p.figures()
		if ok(f) {
			return f
		}
		if time.Now().After(deadline) {
			text, _ := json.Marshal(f)
			p.t.Fatalf("waited in vain for %s: %s", what, text)
		}
	}
}

// logs waits until the process has logged text. Its log comes through a pipe, and may be later than its figures.
func (p *process) logs(text string) {
	p.t.Helper()
	p.await("the log to say "+text, func(figures) bool { return strings.Contains(p.log.String(), text) })
}

// eventually waits until something is true.
func (m *mesh) eventually(what string, is func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// carry returns a carried connection. On a busy machine the
// gateway's answer may be late, and a connection goes direct; carry then tries again.
func (m *mesh) carry(node *process, target string) *net.TCPConn {
	m.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before := node.figures().Relay
		conn, err := m.dial(target)
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { conn.Close() })
		for counted := time.Now().Add(10 * time.Second); time.Now().Before(counted); time.Sleep(5 * time.Millisecond) {
			f := node.figures()
			if f.Relay.Carried.Total > before.Carried.Total {
				return conn
			}
			if f.Relay.Direct.Total > before.Direct.Total {
				break
			}
		}
		conn.Close()
	}
	m.t.Fatalf("no connection to %s is carried", target)
	return nil
}

// tables returns the names of the nftables tables in the node.
func (m *mesh) tables() []string {
	m.t.Helper()
	var names []string
	for line := range strings.Lines(m.run("node", "nft", "list", "tables")) {
		names = append(names, strings.TrimSpace(line))
	}
	slices.Sort(names)
	return names
}
