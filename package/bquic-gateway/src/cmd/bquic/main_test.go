// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
	"bquic/internal/peer"
)

// binary is the program as in the packages.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bquic-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "bquic")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=1.2.3 -X main.commit=abcdef012345", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// bquic runs the program until it exits.
func bquic(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("bquic %q does not end\n%s", args, errs.String())
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// fails checks a run's only line and exit code.
func fails(t *testing.T, code int, line string, args ...string) {
	t.Helper()
	stdout, stderr, got := bquic(t, args...)
	if got != code || stderr != line+"\n" || stdout != "" {
		t.Errorf("bquic %s\nexit code %d, want %d\ngot  %swant %s\n%s", strings.Join(args, " "), got, code, stderr, line, stdout)
	}
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// must panics if a call fails that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFull: what cannot be printed, because the disk is full, is a failure, not a success.
func TestFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	good := write(t, t.TempDir(), "bquic", "config relay\n")
	for _, args := range [][]string{{"token"}, {"version"}, {"help"}, {"token", "--help"}, {"check", good}} {
		cmd := exec.Command(binary, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errs
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 1 || errs.String() != "bquic: write /dev/stdout: no space left on device\n" {
			t.Errorf("bquic %q: exit code %d, %q", args, code, errs.String())
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, word := range []string{"version", "--version"} {
		want := regexp.MustCompile(`^bquic 1\.2\.3\n  Go       go1\.\S+\n  quic-go  v\d+\.\d+\.\d+, patched\n  commit   abcdef012345\n$`)
		if out, _, code := bquic(t, word); !want.MatchString(out) || code != 0 {
			t.Errorf("%s: %q, %d", word, out, code)
		}
	}
	out, _, code := bquic(t, "--help")
	if code != 0 {
		t.Errorf("--help: %d", code)
	}
	for _, c := range commands {
		if !strings.Contains(out, "bquic "+c.name) {
			t.Errorf("--help does not name %s", c.name)
		}
		if help, _, code := bquic(t, c.name, "--help"); code != 0 || !strings.HasPrefix(help, "usage: bquic "+c.name) || !strings.Contains(help, c.doc) {
			t.Errorf("%s --help: %d\n%s", c.name, code, help)
		} else if strings.Contains(help, "[options]") != strings.Contains(help, "\noptions:\n") {
			t.Errorf("%s --help names options that there are not, or not those that there are:\n%s", c.name, help)
		}
		fails(t, 2, "bquic "+c.name+": flag provided but not defined: -nothing", c.name, "--nothing")
		want, _, _ := bquic(t, c.name, "--help")
		if got, _, code := bquic(t, "help", c.name); code != 0 || got != want {
			t.Errorf("help %s: %d\n%s", c.name, code, got)
		}
	}
	if _, errs, code := bquic(t); code != 2 || errs != out {
		t.Errorf("no command: %d\n%s", code, errs)
	}
	fails(t, 2, `bquic: unknown command "serve"; see bquic --help`, "serve")
	fails(t, 2, `bquic: unknown command "sttaus"; did you mean status? For all commands, see bquic --help`, "sttaus")
	fails(t, 2, `bquic: unknown command "gatway"; did you mean gateway? For all commands, see bquic --help`, "help", "gatway")
	fails(t, 2, `bquic help: unexpected argument "relay"`, "help", "gateway", "relay")
	fails(t, 2, `bquic gateway: unexpected argument "x"`, "gateway", "x")
	fails(t, 2, `bquic fetch: an argument is missing; see bquic fetch --help`, "fetch")
	fails(t, 2, `bquic fetch: "http://x/" is not an https:// URL`, "fetch", "http://x/")
	fails(t, 2, `bquic fetch: --profile: unknown profile "x": expected one of ["standard" "bquic" "bquic-2019" "bquic-thesis" "modquic"]`, "fetch", "https://x/", "--profile", "x")
	fails(t, 2, `bquic fetch: --pin: "x" is not sha256/ followed by 32 bytes in base64`, "fetch", "--pin", "x", "https://x/")
	fails(t, 2, `bquic fetch: --local-addr: "x" is not an IP address`, "fetch", "--local-addr", "x", "https://x/")
	fails(t, 2, `bquic bench: --profiles: unknown profile "x": expected one of ["standard" "bquic" "bquic-2019" "bquic-thesis" "modquic"]`, "bench", "--profiles", "bquic,x", "https://x/")
	fails(t, 2, `bquic bench: --repeat: 0 is not in the range 1 to 10000`, "bench", "--repeat", "0", "https://x/")
	fails(t, 2, "bquic check: open /nonexistent: no such file or directory", "check", "/nonexistent")
	fails(t, 2, "bquic fetch: open /nonexistent: no such file or directory", "fetch", "https://x/", "--config", "/nonexistent")
	fails(t, 1, "bquic status: no daemon answers on /nonexistent", "status", "--socket", "/nonexistent")
}

// TestRouterBuild builds as for packages: commands for PCs only are left out, and say so.
func TestRouterBuild(t *testing.T) {
	router := filepath.Join(t.TempDir(), "bquic")
	build := exec.Command("../../../../../scripts/build-bquic", "--router", router)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for path, want := range map[string]bool{binary: true, router: false} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// A stripped binary still contains the names of functions.
		if !bytes.Contains(data, []byte("bquic/internal/trace.ToDir")) {
			t.Errorf("%s cannot record", path)
		}
		if got := bytes.Contains(data, []byte("bquic/internal/trace.Read")); got != want {
			t.Errorf("%s reads recordings: %v, want %v", path, got, want)
		}
	}
	out, err := exec.Command(router, "trace", "x.sqlog").CombinedOutput()
	want := "bquic trace: not in a router's build: copy the recording to a PC and read it there, with a bquic from `make build`\n"
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || string(out) != want {
		t.Errorf("trace: %v\n%s", err, out)
	}
	if out, err := exec.Command(router, "trace", "--help").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "usage: bquic trace") {
		t.Errorf("trace --help: %v\n%s", err, out)
	}
	if out, err := exec.Command(router, "version").CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "  commit   none: built as a package\n") {
		t.Errorf("version: %v\n%s", err, out)
	}
}

// TestBadConfiguration checks that check and both daemons report the same mistakes.
func TestBadConfiguration(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ name, text, want string }{
		{"unclosed_quote", "config gateway\n\toption listen ':443\n", ":2: quote ' is never closed"},
		{"unknown_option", "config gateway 'g'\n\toption lisen ':443'\n", ":2: g.lisen: unknown option"},
		{"wrong_type", "config gateway 'g'\n\toption enabled '2'\n", `:2: g.enabled: "2" is neither 0 nor 1`},
		{"duplicate_section", "config gateway 'g'\nconfig gateway 'g'\n", ":2: g: duplicate section: first in line 1"},
		{"off", "config relay\n", ""},
		{"empty", "", ":1: the file is empty: uci leaves it so if the flash is full"},
	} {
		file := write(t, dir, test.name, test.text)
		if test.want == "" {
			fails(t, 2, "bquic gateway: "+file+": the gateway is not enabled (option enabled '1' in config gateway)", "gateway", "--config", file)
			fails(t, 2, "bquic relay: "+file+": the relay is not enabled (option enabled '1' in config relay)", "relay", "--config", file)
			if out, _, code := bquic(t, "check", file); code != 0 || out != file+": good: gateway off, relay off, sites: 0\n" {
				t.Errorf("check: %q, %d", out, code)
			}
			continue
		}
		fails(t, 2, "bquic check: "+file+test.want, "check", file)
		fails(t, 2, "bquic check: "+file+test.want, "check", "--config", file)
		for _, daemon := range []string{"gateway", "relay"} {
			fails(t, 2, "bquic "+daemon+": "+file+test.want, daemon, "--config", file)
		}
	}
	two := write(t, dir, "two", "config gateway 'g'\n\toption a b\n\toption c d\n")
	fails(t, 2, "bquic check: "+two+":2: g.a: unknown option\nbquic check: "+two+":3: g.c: unknown option", "check", two)
}

// TestCheckForInit checks what the init script would refuse although the text of the file is right.
func TestCheckForInit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives a directory to another user: run it as root")
	}
	dir := t.TempDir()
	others := filepath.Join(dir, "others")
	if err := os.Mkdir(others, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(others, 32768, 32768); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ state, want string }{
		{dir + "/state", ""},
		{others + "/relay", "relay.state_dir: " + others + ": belongs to user 32768"},
	} {
		file := write(t, dir, "conf", fmt.Sprintf(`config relay 'relay'
	option enabled '1'
	option gateway '192.0.2.1:8443'
	option pin 'sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
	option token 'correct-horse-1'
	list interface 'lo'
	option state_dir '%s'
	option status_socket '%s/relay.sock'
`, tc.state, dir))
		switch err := checkForInit(file); {
		case err == nil && tc.want != "":
			t.Errorf("%s is not refused", tc.state)
		case err != nil && (tc.want == "" || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v", tc.state, err)
		}
	}
}

// gatewayConf writes a configuration of a gateway on loopback, with further options and sections.
func gatewayConf(t *testing.T, dir, listen, options, sections string) string {
	t.Helper()
	return write(t, dir, "conf", fmt.Sprintf(`config gateway 'gateway'
	option enabled '1'
	option listen '%s'
	option state_dir '%s/state'
	option status_socket '%s/sock'
%s
%s`, listen, dir, dir, options, sections))
}

func TestGatewayFails(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"1", "2"} {
		if _, _, err := cert.LoadOrCreate(filepath.Join(dir, name), nil); err != nil {
			t.Fatal(err)
		}
	}
	key := func(certificate, key string) string {
		return gatewayConf(t, dir, "127.0.0.1:1", fmt.Sprintf("\toption certificate '%s/%s'\n\toption key '%s/%s'\n", dir, certificate, dir, key), "")
	}
	both := func(conf, want string) {
		t.Helper()
		for _, command := range []string{"check", "gateway"} {
			fails(t, 2, fmt.Sprintf("bquic %s: %s: %s", command, conf, want), command, "--config", conf)
		}
	}
	conf := key("1/cert.pem", "none.pem")
	both(conf, fmt.Sprintf("gateway.certificate, gateway.key: cannot read key: open %s/none.pem: no such file or directory", dir))
	key("1/cert.pem", "2/key.pem")
	both(conf, fmt.Sprintf("gateway.certificate, gateway.key: certificate %s/1/cert.pem and key %s/2/key.pem: private key does not match public key", dir, dir))
	gatewayConf(t, dir, "127.0.0.1:1", "\toption access_log "+conf+"/log\n", "config site\n\tlist host a\n\tlist origin https://192.0.2.1\n\toption origin_ca /nonexistent\n")
	fails(t, 2, "bquic check: "+conf+": site with host a: origin_ca: open /nonexistent: no such file or directory\n"+
		"bquic check: "+conf+": gateway.access_log: open "+conf+"/log: not a directory", "check", conf)
	gatewayConf(t, dir, "127.0.0.1:1", "", "config site\n\tlist host a\n\toption root /nonexistent\n")
	_, errs, code := bquic(t, "check", conf)
	if want := "bquic check: warning: " + conf + ":9: @site[0].root: open /nonexistent: no such file or directory\n"; code != 0 || errs != want {
		t.Errorf("check: %d\ngot  %swant %s", code, errs, want)
	}
	gatewayConf(t, dir, "127.0.0.1:1", "\toption access_log "+conf+"/log\n", "")
	fails(t, 2, "bquic check: "+conf+": gateway.access_log: open "+conf+"/log: not a directory", "check", conf)
	// A missing directory, as in /var/log after a router's boot, is made.
	gatewayConf(t, dir, "127.0.0.1:1", "\toption access_log "+dir+"/new/logs/log\n", "")
	if out, errs, code := bquic(t, "check", conf); code != 0 {
		t.Errorf("check: %d\n%s%s", code, out, errs)
	}
	gatewayConf(t, dir, "127.0.0.1:1", "", "config relay\n\toption enabled 1\n\tlist gateway a:1\n\toption token 12345678\n\toption ca /nonexistent\n")
	for _, command := range []string{"check", "relay"} {
		fails(t, 2, "bquic "+command+": "+conf+": relay.ca: open /nonexistent: no such file or directory", command, "--config", conf)
	}

	// The daemon logs that it has made a certificate before it fails.
	first := func(line string) {
		t.Helper()
		_, stderr, code := bquic(t, "gateway", "--config", conf)
		if code != 1 || !strings.HasSuffix(stderr, "\n"+line+"\n") && stderr != line+"\n" {
			t.Errorf("exit code %d\ngot  %s\nwant %s", code, stderr, line)
		}
	}
	udp, err := net.ListenPacket("udp", freeAddress())
	if err != nil {
		t.Fatal(err)
	}
	gatewayConf(t, dir, udp.LocalAddr().String(), "", "")
	first(fmt.Sprintf("bquic gateway: cannot listen on UDP %s: address already in use", udp.LocalAddr()))
	udp.Close()
	tcp, err := net.Listen("tcp", freeAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	gatewayConf(t, dir, tcp.Addr().String(), "", "")
	first(fmt.Sprintf("bquic gateway: cannot listen on TCP %s: address already in use", tcp.Addr()))
}

// A daemon is a running gateway.
type daemon struct {
	conf, url, pin string
	cmd            *exec.Cmd
	log            chan string // its lines after the first ones
}

// port is the last one that freeAddress has returned.
var port = 8443

// freeAddress returns an address that is this process's own, with a port that the kernel chooses for nobody: one that was free a moment ago may
// be taken by then, for UDP or for TCP.
func freeAddress() string {
	pid := os.Getpid()
	port++
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+pid>>16, pid>>8&0xff, pid&0xff, port)
}

func startGateway(t *testing.T, options, sections string) *daemon {
	t.Helper()
	dir := t.TempDir()
	addr := freeAddress()
	d := &daemon{conf: gatewayConf(t, dir, addr, options, sections), url: "https://" + addr, log: make(chan string, 100)}
	d.cmd = exec.Command(binary, "gateway", "--config", d.conf)
	output, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stderr = d.cmd.Stdout
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(d.log)
		defer close(ready)
		for scan := bufio.NewScanner(output); scan.Scan(); {
			if m := regexp.MustCompile(`gateway ready.* pin="([^"]*)"`).FindStringSubmatch(scan.Text()); m != nil {
				ready <- m[1]
			} else {
				select {
				case d.log <- scan.Text():
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	})
	var ok bool
	if d.pin, ok = <-ready; !ok {
		t.Fatalf("the gateway did not start: %s", <-d.log)
	}
	return d
}

// TestStoppedTwice checks that a second SIGTERM does not disturb a graceful stop.
func TestStoppedTwice(t *testing.T) {
	root := t.TempDir()
	write(t, root, "large", strings.Repeat("x", 20_000_000))
	d := startGateway(t, "", fmt.Sprintf("config site\n\tlist host '*'\n\toption root '%s'\n", root))
	address := strings.TrimPrefix(d.url, "https://")
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // read no more, so that the gateway waits for this connection
		t.Fatal(err)
	}
	for range 2 { // the end of the test sends a third one and checks the exit
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			listens, err := net.Dial("tcp", address)
			if err != nil {
				break // it is stopping
			}
			listens.Close()
			if time.Now().After(deadline) {
				t.Fatal("it goes on listening")
			}
		}
	}
}

// TestUntilEnd checks that the status of a relay that was stopped answers until its last connection has ended.
func TestUntilEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	carried, stopping, began, done := make(chan struct{}), make(chan struct{}), make(chan context.Context, 1), make(chan error, 1)
	go func() {
		done <- untilEnd(ctx, func(running context.Context) error {
			<-running.Done()
			close(stopping)
			<-carried
			return nil
		}, func(serving context.Context) error {
			began <- serving
			<-serving.Done()
			return nil
		})
	}()
	cancel()
	<-stopping
	serving := <-began
	if serving.Err() != nil {
		t.Error("the status has ended while the relay carries a connection")
	}
	close(carried)
	if err := <-done; err != nil || serving.Err() == nil {
		t.Errorf("%v, and the status goes on: %v", err, serving.Err() == nil)
	}

	broken := errors.New("the socket is gone")
	err := untilEnd(t.Context(), func(running context.Context) error {
		<-running.Done()
		return nil
	}, func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("an error of the others is %v", err)
	}
}

func TestFetch(t *testing.T) {
	root := t.TempDir()
	text := strings.Repeat("0123456789", 100000)
	write(t, root, "file", text)
	d := startGateway(t, "\tlist mesh '127.0.0.0/8'\n", fmt.Sprintf("config site\n\tlist host '*'\n\toption root '%s'\n", root))
	got := filepath.Join(t.TempDir(), "got")

	stdout, stderr, code := bquic(t, "fetch", d.url+"/file", "--pin", d.pin, "--json", "-o", got, "--profile", "bquic-2019", "--local-addr", "127.0.0.1")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	var res map[string]any
	if err := json.Unmarshal([]byte(stdout), &res); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"url", "protocol", "status", "bytes", "seconds", "mbps", "handshake_ms", "local_addr", "profile", "data_per_ack", "stats"} {
		if res[name] == nil {
			t.Errorf("%q is missing in %s", name, stdout)
		}
	}
	if res["bytes"] != 1e6 || res["status"] != 200.0 || res["profile"] != "bquic-2019" || res["protocol"] != "h3" {
		t.Errorf("got %s", stdout)
	}
	if s, b := res["seconds"].(float64), res["mbps"].(float64); s <= 0 || b < 8/s*0.999 || b > 8/s*1.001 {
		t.Errorf("%v Mbit/s in %v s", b, s)
	}
	if data, err := os.ReadFile(got); err != nil || string(data) != text {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if host, _, err := net.SplitHostPort(res["local_addr"].(string)); err != nil || host != "127.0.0.1" {
		t.Errorf("local_addr %v", res["local_addr"])
	}

	if out, _, code := bquic(t, "fetch", "--pin", d.pin, d.url+"/file"); code != 0 || !regexp.MustCompile(`(?s)transfer +1000000 bytes in .* Mbit/s\n.*handshake .*packets per ACK`).MatchString(out) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, errs, code := bquic(t, "fetch", "--pin", d.pin, "-o", "-", d.url+"/file"); code != 0 || out != text || !strings.Contains(errs, "handshake") {
		t.Errorf("-o -: exit code %d, %d bytes\n%s", code, len(out), errs)
	}
	own := write(t, t.TempDir(), "conf", "config profile 'mine'\n\toption base 'modquic'\n")
	if out, _, code := bquic(t, "bench", "--config", own, "--profiles", "standard,mine", "--repeat", "2", "--json", "--pin", d.pin, d.url+"/file"); code != 0 || strings.Count(out, `"status":200`) != 4 || !strings.Contains(out, `"profile":"mine"`) {
		t.Errorf("bench: exit code %d\n%s", code, out)
	}
	if out, _, code := bquic(t, "bench", "--repeat", "1", "--pin", d.pin, d.url+"/file"); code != 0 || len(strings.Split(out, "\n")) != 4 {
		t.Errorf("bench: exit code %d\n%s", code, out)
	}
	out, _, code := bquic(t, "status", "--json", "--config", d.conf)
	var document struct {
		Gateway struct {
			Role, Version, Pin string
			Connections        []struct {
				Remote, Profile string
			}
		}
	}
	err := json.Unmarshal([]byte(out), &document)
	st := document.Gateway
	if err != nil || code != 0 || st.Role != "gateway" || st.Version != "1.2.3" || st.Pin != d.pin {
		t.Errorf("status: exit code %d, %v\n%s", code, err, out)
	}
	if out, _, code := bquic(t, "status", "--config", d.conf); code != 0 || !strings.HasPrefix(out, "gateway 1.2.3, up for ") || !strings.Contains(out, "  pin          "+d.pin+"\n") {
		t.Errorf("status: exit code %d\n%s", code, out)
	}
	// The sender's statistics of a finished download are found by the client's address.
	found := false
	for _, c := range st.Connections {
		found = found || c.Remote == res["local_addr"] && c.Profile == "bquic"
	}
	if !found {
		t.Errorf("%v is not in %s", res["local_addr"], out)
	}

	wrong := "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	host := strings.TrimPrefix(d.url, "https://")
	ip, _, _ := net.SplitHostPort(host)
	fails(t, 1, fmt.Sprintf("bquic fetch: cannot connect to %s: wrong pin: the server's key is %s", host, d.pin), "fetch", "--pin", wrong, d.url+"/file")
	fails(t, 1, fmt.Sprintf("bquic fetch: cannot connect to %s: tls: failed to verify certificate: x509: cannot validate certificate for %s because it doesn't contain any IP SANs\n"+
		"bquic fetch: self-signed: if `bquic status` of the gateway shows this key, give --pin %s", host, ip, d.pin), "fetch", d.url+"/file")
	if out, errs, code := bquic(t, "fetch", "--insecure", d.url+"/none"); code != 1 || errs != "bquic fetch: the server answered with status 404\n" || !strings.Contains(out, "status       404") {
		t.Errorf("404: exit code %d\n%s%s", code, out, errs)
	}
	fails(t, 1, "bquic bench: profile standard, repetition 1: the server answered with status 404", "bench", "--insecure", d.url+"/none")
	fails(t, 1, "bquic fetch: open /nonexistent: no such file or directory", "fetch", "--upload", "/nonexistent", "--insecure", d.url+"/file")
	sent := write(t, t.TempDir(), "sent", "kept")
	fails(t, 2, "bquic fetch: -o would overwrite "+sent+", the file to send", "fetch", "--upload", sent, "-o", sent, "--insecure", d.url+"/file")
	if kept, err := os.ReadFile(sent); err != nil || string(kept) != "kept" {
		t.Errorf("the file to send is now %q (%v)", kept, err)
	}

	// No answer: the test never reads this socket.
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	fails(t, 1, fmt.Sprintf("bquic fetch: cannot connect to %s: no answer in time", silent.LocalAddr()), "fetch", "--timeout", "300ms", "--insecure", "https://"+silent.LocalAddr().String())
	fails(t, 1, fmt.Sprintf("bquic gateway: cannot listen on UDP %s: address already in use", host), "gateway", "--config", d.conf)
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := &progress{w: &out}
	p.report(500_000, 2_000_000)
	p.report(700_000, 0) // the server does not say how much there is
	p.every = time.Hour
	p.report(900_000, 2_000_000)
	p.clear()
	lines := strings.Split(out.String(), "\r\x1b[K")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "0.5 MB (25 %)") || !strings.HasPrefix(lines[2], "0.7 MB  ") || lines[3] != "" {
		t.Errorf("%q", lines)
	}
}

func TestUpload(t *testing.T) {
	received := make(chan int64, 10)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	origin := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received <- n
	})}
	go func() { _ = origin.Serve(ln) }()
	defer origin.Close()
	d := startGateway(t, "", fmt.Sprintf("config site\n\tlist host '*'\n\toption origin 'http://%s'\n", ln.Addr()))
	file := write(t, t.TempDir(), "up", strings.Repeat("x", 5000000))
	out, errs, code := bquic(t, "fetch", "--upload", file, "--pin", d.pin, d.url+"/")
	if code != 0 || !strings.Contains(out, "5000000 bytes") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if n := <-received; n != 5000000 {
		t.Errorf("the origin received %d bytes", n)
	}
}

// TestTunnelRefused checks that the first refusal of a stranger and of a peer is logged, further ones are
// counted, and the gateway continues to serve.
func TestTunnelRefused(t *testing.T) {
	d := startGateway(t, "\toption token 'right-token'\n\tlist connect_from '127.0.0.0/8'\n", "")
	pin, err := cert.ParsePin(d.pin)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{NextProtos: []string{http3.NextProtoH3}}
	cert.Verify(conf, pin)
	conn, err := quic.DialAddr(t.Context(), strings.TrimPrefix(d.url, "https://"), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(0, "")
	h3 := (&http3.Transport{}).NewClientConn(conn)
	for _, test := range []struct {
		token, target string
		status        int
		log           string
	}{
		{"wrong-token", "192.0.2.1:80", 407, `target=192.0.2.1:80 status=407 reason="wrong or missing token"`},
		{"right-token", "127.0.0.1:22", 403, `target=127.0.0.1:22 status=403 reason="127.0.0.1 is a loopback address"`},
		{"right-token", "169.254.1.1:80", 403, `of="peer shared" count=1 within=10s`},
	} {
		str, err := h3.OpenRequestStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		req := &http.Request{Method: http.MethodConnect, Host: test.target, URL: &url.URL{Host: test.target}, Header: http.Header{"Proxy-Authorization": {"Bearer " + test.token}}}
		if err := str.SendRequestHeader(req); err != nil {
			t.Fatal(err)
		}
		res, err := str.ReadResponse()
		if err != nil || res.StatusCode != test.status {
			t.Fatalf("%s: %v, %v", test.target, res, err)
		}
		select {
		case line := <-d.log:
			for strings.Contains(line, "self-signed") || strings.Contains(line, "buffer size") {
				line = <-d.log
			}
			if !strings.Contains(line, " refused") || !strings.HasSuffix(line, test.log) {
				t.Errorf("got  %s\nwant %s", line, test.log)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing was logged")
		}
	}
}

// TestToken checks that the printed token and hash match and are valid in the file.
func TestToken(t *testing.T) {
	seen := make(map[string]bool)
	for range 2 {
		out, errs, code := bquic(t, "token")
		m := regexp.MustCompile(`(?s)option token '([^']+)'\n.*list token '([^']+)'\n`).FindStringSubmatch(out)
		if code != 0 || m == nil {
			t.Fatalf("exit code %d\n%s%s", code, out, errs)
		}
		if m[2] != peer.HashOf(m[1]).String() || seen[m[1]] {
			t.Errorf("%s is the hash of %s, which is new", m[2], m[1])
		}
		seen[m[1]] = true
		file := write(t, t.TempDir(), "conf", "config relay\n\toption token '"+m[1]+"'\nconfig peer 'a'\n\tlist token '"+m[2]+"'\n")
		if out, errs, code := bquic(t, "check", file); code != 0 {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}
	}
}

// TestIdleMemory limits the memory of an idle gateway on a router.
func TestIdleMemory(t *testing.T) {
	const limit = 12 << 10 // KiB
	d := startGateway(t, "", "")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // what only the start needs is freed within seconds
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(data)
		if m == nil {
			t.Fatalf("no VmRSS in %s", data)
		}
		rss, err := strconv.Atoi(string(m[1]))
		if err == nil && rss <= limit {
			t.Logf("idle: %d KiB", rss)
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d KiB, more than %d: %v", rss, limit, err)
		}
	}
}

// TestRelay runs the relay in a separate network namespace without a gateway.
func TestRelay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("must be root: the relay takes connections with nftables, in a network namespace of its own")
	}
	dir := t.TempDir()
	conf := write(t, dir, "conf", fmt.Sprintf(`config relay 'relay'
	option enabled '1'
	option gateway '192.0.2.1:8443'
	option pin 'sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
	option token 'abcdefgh'
	option profile 'bquic_2'
	option status_socket '%s/sock'
config profile 'bquic_2'
	option base 'bquic'
`, dir))
	cmd := exec.Command(binary, "relay", "--config", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out string
	for range 3000 {
		var code int
		if out, _, code = bquic(t, "status", "--json", "--socket", filepath.Join(dir, "sock")); code == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	var document struct {
		Relay struct {
			Role, Version, Profile, State, Gateway string
		}
	}
	err := json.Unmarshal([]byte(out), &document)
	st := document.Relay
	if err != nil || st.Role != "relay" || st.Version != "1.2.3" || st.Profile != "bquic_2" ||
		st.Gateway != "192.0.2.1:8443" || st.State != "away" {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, _ := bquic(t, "rpcd", "call", "status", "--config", conf); !strings.Contains(out, `"live":{"connections":0,`) || strings.Contains(out, `"connections":[`) ||
		!strings.Contains(out, `"profile":"bquic_2"`) || !strings.Contains(out, `"off":["gateway"]`) {
		t.Errorf("rpcd: %s", out)
	}
	moved := write(t, dir, "moved", strings.Replace(string(must(os.ReadFile(conf))), "/sock'\n", "/other'\n\toption metrics '127.0.0.1:9'\n", 1))
	if err := os.Rename(moved, conf); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if out, _, _ = bquic(t, "status", "--json", "--socket", filepath.Join(dir, "sock")); strings.Contains(out, `"reload"`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, stderr.String())
	}
	for _, option := range []string{"status_socket", "metrics"} {
		if !strings.Contains(stderr.String(), `"this change needs a restart" option=relay.`+option) {
			t.Errorf("relay.%s has changed, and the log does not say that it needs a restart:\n%s", option, stderr.String())
		}
	}

	// State that a killed relay has left in the kernel is removed.
	script := `ip link set lo up
"$1" relay --config "$2" 2>/dev/null &
until nft list tables | grep -q bquic; do kill -0 $!; sleep 0.05; done
kill -9 $!
wait $! || true
# A process that it was just starting may hold the table for a moment, and while somebody does, --clean does nothing.
for i in $(seq 600); do nft list tables | grep -q bquic || break; sleep 0.05; done
eval "$3"
nft list tables
ip rule
ip -6 rule`
	tproxy := write(t, dir, "tproxy", strings.Replace(string(must(os.ReadFile(conf))), "config relay 'relay'\n", "config relay 'relay'\n\toption mode 'tproxy'\n", 1))
	// The guard removes it, with the tools of an OpenWrt router, where busybox's ip knows tables up to 1023
	// only. If the guard was killed, too, as in a jail, the init script removes it.
	tools := t.TempDir()
	for _, tool := range []string{"sh", "ip"} {
		if err := os.Symlink(must(exec.LookPath("busybox")), filepath.Join(tools, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, clean string }{
		{tools + ":" + os.Getenv("PATH"), "for i in $(seq 600); do { ip rule; ip -6 rule; } | grep -q fwmark || break; sleep 0.05; done"},
		{os.Getenv("PATH"), binary + " openwrt relay --clean"},
	} {
		left := exec.Command("unshare", "-n", "sh", "-euc", script, "sh", binary, tproxy, c.clean)
		left.Env = append(os.Environ(), "PATH="+c.path)
		if out, err := left.CombinedOutput(); err != nil || strings.Contains(string(out), "bquic") || strings.Contains(string(out), "fwmark") || !strings.Contains(string(out), "lookup main") {
			t.Errorf("after a kill, %s: %v\n%s", c.clean, err, out)
		}
	}

	noCA := write(t, dir, "no_ca", strings.Replace(`config relay
	option enabled 1
	option gateway a:1
	option token abcdefgh
	option ca DIR/none
`, "DIR", dir, 1))
	fails(t, 2, fmt.Sprintf("bquic relay: %s: relay.ca: open %s/none: no such file or directory", noCA, dir), "relay", "--config", noCA)
}
