// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bquic/internal/status"
)

// daemon is a user ID that does not exist on this machine.
const daemon = 54321

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "must be root: files are given to a user")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree makes a new directory with these entries: "dir/", "file=content", "link>target". "@uid"
// before an entry sets its owner; the default is root. tree returns the directory.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range names {
		uid := 0
		if rest, ok := strings.CutPrefix(name, "@"); ok {
			_, err := fmt.Sscanf(rest, "%d", &uid)
			must(t, err)
			_, name, _ = strings.Cut(rest, " ")
		}
		var path string
		if file, content, ok := strings.Cut(name, "="); ok {
			path = filepath.Join(top, file)
			must(t, os.WriteFile(path, []byte(content), 0o644))
		} else if link, target, ok := strings.Cut(name, ">"); ok {
			path = filepath.Join(top, link)
			must(t, os.Symlink(strings.ReplaceAll(target, "TOP", top), path))
		} else {
			path = filepath.Join(top, name)
			must(t, os.Mkdir(path, 0o755))
		}
		must(t, os.Lchown(path, uid, uid))
	}
	return top
}

// state describes all entries of a directory: owner, group, mode and content.
func state(t *testing.T, top string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.Walk(top, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %d:%d %v", strings.TrimPrefix(path, top), st.Uid, st.Gid, info.Mode())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintf(&b, " %q", data)
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// owners returns the owners of the named files.
func owners(t *testing.T, top string, names ...string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(top, name))
		must(t, err)
		all = append(all, fmt.Sprintf("%s %d", name, info.Sys().(*syscall.Stat_t).Uid))
	}
	return strings.Join(all, ", ")
}

func TestResolve(t *testing.T) {
	top := tree(t, "ssl/", "acme/", "acme/full=x", "ssl/full>../acme/full", "@54321 ssl/planted>../acme/full")
	for name, want := range map[string]string{"ssl/full": "acme/full", "acme/full": "acme/full", "ssl/planted": "ssl/planted", "none/x": "none/x"} {
		if got := resolve(filepath.Join(top, name)); got != filepath.Join(top, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestGiveDir(t *testing.T) {
	to := owner{daemon, daemon}
	for _, test := range []struct {
		name  string
		has   []string
		dir   string
		own   bool
		wrong string // part of the error; "": success
	}{
		{"new", nil, "a", false, ""},
		{"new in new ones", nil, "a/b/c", false, ""},
		{"empty", []string{"a/"}, "a", false, ""},
		{"the daemon's", []string{"@54321 a/", "@54321 a/key.pem=x", "a/site.pem=root's"}, "a", false, ""},
		{"by root's link", []string{"a/", "l>a"}, "l", false, ""},
		{"by root's link above", []string{"a/", "l>TOP/a"}, "l/b", false, ""},
		{"root's with content", []string{"a/", "a/network=x"}, "a", false, "belongs to user 0 and is not empty"},
		{"the package's own", []string{"a/", "a/site.pem=x"}, "a", true, ""},
		{"somebody's with content", []string{"@1000 a/", "a/x=x"}, "a", false, "belongs to user 1000 and is not empty"},
		{"the package's own, of another router's daemon", []string{"@1000 a/", "@1000 a/key.pem=x"}, "a", true, ""},
		{"the daemon's link", []string{"@1000 a/", "@54321 l>a"}, "l", false, "a symbolic link of user 54321"},
		{"a link in the daemon's", []string{"etc/", "@54321 a/", "a/l>TOP/etc"}, "a/l", false, "belongs to user 54321, so root writes nothing below it"},
		{"below the daemon's", []string{"@54321 a/"}, "a/b", false, "belongs to user 54321, so root writes nothing below it"},
		{"a file", []string{"a=x"}, "a", false, "not a directory"},
		{"links in a circle", []string{"a>b", "b>a"}, "a", false, "too many levels of symbolic links"},
	} {
		t.Run(test.name, func(t *testing.T) {
			top := tree(t, test.has...)
			dir := filepath.Join(top, test.dir)
			before := state(t, top)
			dry := giveDir(dir, "left", to, test.own, false)
			if after := state(t, top); after != before {
				t.Errorf("asked, it changed\n%sto\n%s", before, after)
			}
			err := giveDir(dir, "left", to, test.own, true)
			if fmt.Sprint(err) != fmt.Sprint(dry) {
				t.Errorf("asked: %v, then: %v", dry, err)
			}
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Errorf("got %v, want %s", err, test.wrong)
				}
				if after := state(t, top); after != before {
					t.Errorf("refused, it changed\n%sto\n%s", before, after)
				}
				return
			}
			must(t, err)
			info, err := os.Stat(dir)
			must(t, err)
			if info.Sys().(*syscall.Stat_t).Uid != daemon {
				t.Errorf("not given: %s", state(t, top))
			}
			for line := range strings.Lines(before) { // except for the directory, nothing has changed
				if strings.Contains(line, " \"") && !strings.Contains(state(t, top), line) {
					t.Errorf("%s is now in\n%s", line, state(t, top))
				}
			}
			must(t, giveDir(dir, "left", to, false, true)) // and again at the next start
		})
	}
}

// TestSystemDirectories changes nothing, it only checks.
func TestSystemDirectories(t *testing.T) {
	top := tree(t, "l>/etc")
	for _, dir := range []string{"/", "/etc", "/mnt", "/nonexistent", "/etc/..", filepath.Join(top, "l")} {
		for _, to := range []owner{{daemon, daemon}, {}} {
			if err := giveDir(dir, "left", to, false, false); err == nil || !strings.Contains(err.Error(), "a system directory") {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

func TestGiveFile(t *testing.T) {
	to := owner{daemon, daemon}
	for _, test := range []struct {
		name, file string
		has        []string
		wrong      string
		want       string // owners afterwards
	}{
		{"new", "d/log", []string{"d/"}, "", "d 0, d/log 54321"},
		{"empty", "d/log", []string{"d/", "d/log="}, "", "d 0, d/log 54321"},
		{"the daemon's", "d/log", []string{"d/", "@54321 d/log=x"}, "", "d 0, d/log 54321"},
		{"with content", "d/passwd", []string{"d/", "d/passwd=x"}, "belongs to user 0 and is not empty", "d/passwd 0"},
		{"somebody's", "d/log", []string{"d/", "@1000 d/log="}, "belongs to user 1000", "d/log 1000"},
		{"a link", "d/log", []string{"d/", "x=", "@54321 d/log>TOP/x"}, "too many levels of symbolic links", "x 0"},
		{"in the daemon's directory", "d/log", []string{"@54321 d/", "x=", "@54321 d/log>TOP/x"}, "", "x 0, d/log 54321"},
		{"in somebody's directory", "d/log", []string{"@1000 d/", "d/log="}, "belongs to user 1000", "d/log 0"},
		{"a directory", "d/log", []string{"d/", "d/log/"}, "is a directory", "d/log 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			top := tree(t, test.has...)
			before := state(t, top)
			dry := giveFile(filepath.Join(top, test.file), to, false)
			if after := state(t, top); after != before {
				t.Errorf("asked, it changed\n%sto\n%s", before, after)
			}
			err := giveFile(filepath.Join(top, test.file), to, true)
			if fmt.Sprint(err) != fmt.Sprint(dry) {
				t.Errorf("asked: %v, then: %v", dry, err)
			}
			if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("got %v, want %s", err, test.wrong)
			}
			var names []string
			for part := range strings.SplitSeq(test.want, ", ") {
				names = append(names, strings.Fields(part)[0])
			}
			if got := owners(t, top, names...); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	top := tree(t, "d/", "d/other=")
	must(t, os.Link(filepath.Join(top, "d/other"), filepath.Join(top, "d/log")))
	if err := giveFile(filepath.Join(top, "d/log"), to, true); err == nil {
		t.Error("a file with another name was given")
	}
}

func good() error { return nil }

func TestPrepare(t *testing.T) {
	top := t.TempDir()
	text := "config gateway\n\toption enabled 1\n\toption state_dir '" + top + "/state'\n\toption access_log '" + top + "/log/access.log'\n\toption status_socket '" + top + "/run/sock'\n"
	files := Files(filepath.Join(top, "made"))
	prepare := func(text string, uid int, want bool) {
		t.Helper()
		p := plan(t, Gateway, text)
		must(t, p.Check(uid))
		if changed, err := p.Prepare(files, uid, uid, good); err != nil || changed != want {
			t.Errorf("changed: %v, want %v; %v", changed, want, err)
		}
	}
	prepare(text, daemon, true)
	if got, want := owners(t, top, "state", "run", "log", "made", "made/gateway", "made/gateway/conf"), "state 54321, run 54321, log 54321, made 0, made/gateway 0, made/gateway/conf 0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	prepare(text, daemon, false)
	prepare(text+"\toption token '12345678'\n", daemon, false)
	data, err := os.ReadFile(files.config(Gateway))
	must(t, err)
	if !strings.Contains(string(data), "12345678") {
		t.Errorf("not in the daemon's file: %s", data)
	}
	if info, err := os.Stat(files.config(Gateway)); err != nil || info.Mode() != 0o640 || info.Sys().(*syscall.Stat_t).Gid != daemon {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	prepare(text+"\toption listen ':1'\n", daemon, true)
	prepare(text+"\toption listen ':1'\n", 0, false) // as root: no owner changes
}

// TestReadOnlyLog has an access log on a drive that has become read-only, as after an error.
func TestReadOnlyLog(t *testing.T) {
	top := tree(t, "@54321 state/", "run/", "log/")
	must(t, unix.Mount("log", top+"/log", "tmpfs", 0, ""))
	defer func() { must(t, unix.Unmount(top+"/log", unix.MNT_DETACH)) }()
	prepare := func(name string) error {
		text := "config gateway\n\toption enabled 1\n\toption state_dir '" + top + "/state'\n\toption access_log '" + top + "/log/" + name + "'\n\toption status_socket '" + top + "/run/sock'\n"
		_, err := plan(t, Gateway, text).Prepare(Files(filepath.Join(top, "made")), daemon, daemon, good)
		return err
	}
	must(t, prepare("access.log"))
	must(t, unix.Mount("", top+"/log", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	must(t, prepare("access.log"))
	if err := prepare("new.log"); !errors.Is(err, unix.EROFS) {
		t.Errorf("a log that is not there: %v", err)
	}
}

// TestBoot has an empty /var, as at boot, so that the access log's directory is missing.
func TestBoot(t *testing.T) {
	top := t.TempDir()
	text := "config gateway\n\toption enabled 1\n\toption state_dir '" + top + "/flash'\n\toption access_log '" + top + "/var/log/bquic/access.log'\n\toption status_socket '" + top + "/var/run/bquic/sock'\n"
	for range 2 {
		p := plan(t, Gateway, text)
		must(t, p.Check(daemon))
		changed, err := p.Prepare(Files(top+"/var/etc/bquic"), daemon, daemon, good)
		if err != nil || !changed {
			t.Errorf("changed: %v, %v", changed, err)
		}
		if got, want := owners(t, top, "var", "var/log", "var/log/bquic"), "var 0, var/log 0, var/log/bquic 54321"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		must(t, os.RemoveAll(top+"/var"))
	}
}

// TestWebroot checks that the jail shows the directory of OpenWrt's acme, which is in memory and which acme makes only when it renews.
func TestWebroot(t *testing.T) {
	top := tree(t, "@1000 somebody/")
	webroot := top + "/var/run/acme/challenge"
	text := "config gateway\n\toption enabled 1\n\toption redirect ':80'\n\toption state_dir '" + top + "/flash'\n\toption status_socket '" + top + "/run/sock'\n\toption acme_webroot "
	prepare := func(webroot string) *Plan {
		path := top + "/bquic"
		must(t, os.WriteFile(path, []byte(text+webroot+"\n"), 0o644))
		p, _, err := Load(path, Gateway)
		must(t, err)
		_, err = p.Prepare(Files(top+"/made"), daemon, daemon, good)
		must(t, err)
		return p
	}
	first := prepare(webroot)
	if !slices.Contains(first.See, webroot) || !isDir(webroot) {
		t.Errorf("sees %q", first.See)
	}
	if got, want := owners(t, top, "var", "var/run/acme/challenge"), "var 0, var/run/acme/challenge 0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if again := prepare(webroot); again.Fixed != first.Fixed {
		t.Errorf("the next reload restarts the gateway:\n%sthen\n%s", first.Fixed, again.Fixed)
	}
	if prepare(top + "/somebody/acme"); isDir(top + "/somebody/acme") {
		t.Error("root wrote into somebody's directory")
	}
}

// TestListen checks that LuCI learns of addresses that the daemon cannot listen on, and that a
// running daemon survives such a change.
func TestListen(t *testing.T) {
	top := t.TempDir()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer other.Close()
	taken := other.Addr().String()
	socket, err := status.Listen(top + "/sock")
	must(t, err)
	stop := func() { socket.Close() }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go socket.Run(ctx, status.Answers{status.Status: func() any { return 1 }})
	files := Files(top + "/made")
	gateway := func(options string) *Plan {
		return plan(t, Gateway, "config gateway\n\toption enabled 1\n\toption state_dir '"+top+"/state'\n\toption status_socket '"+top+"/sock'\n"+options)
	}
	prepare := func(options string) error {
		_, err := gateway(options).Prepare(files, daemon, daemon, good)
		return err
	}
	// As if the gateway had been started with this option: the port is its own.
	mine := "\toption listen '" + taken + "'\n"
	must(t, prepare(mine))
	for options, want := range map[string]string{
		mine: "",
		"\toption listen ':" + taken[strings.LastIndex(taken, ":")+1:] + "'\n":       "",
		"\toption listen '192.0.2.1" + taken[strings.LastIndex(taken, ":"):] + "'\n": "gateway.listen: cannot listen on 192.0.2.1:",
		"\toption listen '127.0.0.1:1'\n\toption redirect '" + taken + "'\n":         "", // its own, too
		"\toption listen '127.0.0.1:1'\n\toption metrics '192.0.2.1:1'\n":            "gateway.metrics: cannot listen on 192.0.2.1:1: cannot assign requested address",
		"\toption listen '127.0.0.1:1'\n\toption redirect '192.0.2.1:1'\n":           "gateway.redirect: cannot listen on 192.0.2.1:1",
	} {
		for name, err := range map[string]error{"check": gateway(options).CheckListen(files), "reload": prepareIn(t, gateway(options), files)} {
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("%s of %q: %v, want %q", name, options, err, want)
			}
		}
	}
	// If no daemon runs, LuCI learns of it, too, but the daemon is started, because a missing
	// address may appear later.
	cancel()
	stop()
	must(t, os.RemoveAll(top+"/made"))
	if err := gateway(mine).CheckListen(files); err == nil || !strings.HasSuffix(err.Error(), "cannot listen on "+taken+": address already in use") {
		t.Error(err)
	}
	must(t, prepare(mine))

	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer udp.Close()
	if err := gateway("\toption listen '" + udp.LocalAddr().String() + "'\n").CheckListen(files); err == nil {
		t.Error("not told that another has the port of UDP")
	}
	relay := plan(t, Relay, "config relay\n\toption enabled 1\n\toption gateway a:1\n\toption token 12345678\n\toption pin sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\toption port "+taken[strings.LastIndex(taken, ":")+1:]+"\n")
	if err := relay.CheckListen(files); err == nil || !strings.HasPrefix(err.Error(), "relay.port: cannot listen on :") {
		t.Error(err)
	}
}

// prepareIn runs Prepare on a copy of the files, and checks that a refusal changes nothing. A success
// would change the files.
func prepareIn(t *testing.T, p *Plan, files Files) error {
	t.Helper()
	made := Files(t.TempDir() + "/made")
	must(t, os.MkdirAll(made.dir(p.Role), 0o755))
	data, err := os.ReadFile(files.fixed(p.Role))
	must(t, err)
	must(t, os.WriteFile(made.fixed(p.Role), data, 0o640))
	changed, err := p.Prepare(made, daemon, daemon, good)
	if after, _ := os.ReadFile(made.fixed(p.Role)); err != nil && (changed || string(after) != string(data)) {
		t.Errorf("changed though refused: %s", after)
	}
	return err
}

// TestRelayState checks that the relay owns its state directory while it has state to keep.
func TestRelayState(t *testing.T) {
	for options, want := range map[string]string{"": "state 54321, run 54321", "\toption control_share 0\n": "run 54321"} {
		top := t.TempDir()
		p := plan(t, Relay, "config relay\n\toption enabled 1\n\toption gateway a:1\n\toption token 12345678\n\toption pin sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"+
			"\toption state_dir '"+top+"/state'\n\toption status_socket '"+top+"/run/sock'\n"+options)
		_, err := p.Prepare(Files(top+"/made"), daemon, daemon, good)
		must(t, err)
		names := []string{"run"}
		if options == "" {
			names = []string{"state", "run"}
		} else if isDir(top + "/state") {
			t.Error("a directory that nobody needs")
		}
		if got := owners(t, top, names...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if p := plan(t, Relay, "config relay\n\toption state_dir '/mnt'\n\toption enabled 1\n\toption gateway a:1\n\toption token 12345678\n\toption ca /x\n"); p.Check(daemon) == nil || !strings.HasPrefix(p.Check(daemon).Error(), "relay.state_dir: ") {
		t.Errorf("a directory of the system's: %v", p.Check(daemon))
	}
}

// TestLeft has what daemons of root have left, for example before ujail was installed, or one of the router of a backup.
func TestLeft(t *testing.T) {
	for _, test := range []struct {
		role, options, want string
	}{
		{Gateway, "\toption access_log 'TOP/log/access.log'\n", "run/sock 54321, log/access.log 54321, log/other 0"},
		{Relay, "\toption gateway a:1\n\toption token 12345678\n\toption pin sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", "run/sock 54321, state/proof 54321, state/key.pem 0"},
	} {
		top := tree(t, "@54321 state/", "log/", "run/", "log/access.log=x", "log/other=x", "@1000 state/proof=x", "state/key.pem=x")
		defer func(dirs []string) { own = dirs }(own)
		own = []string{top + "/log", top + "/run"}
		socket, err := net.Listen("unix", top+"/run/sock")
		must(t, err)
		defer socket.Close()
		text := "config " + test.role + "\n\toption enabled 1\n\toption state_dir 'TOP/state'\n\toption status_socket 'TOP/run/sock'\n" + test.options
		_, err = plan(t, test.role, strings.ReplaceAll(text, "TOP", top)).Prepare(Files(top+"/made"), daemon, daemon, good)
		must(t, err)
		var names []string
		for part := range strings.SplitSeq(test.want, ", ") {
			names = append(names, strings.Fields(part)[0])
		}
		if got := owners(t, top, names...); got != test.want {
			t.Errorf("%s: got %s, want %s", test.role, got, test.want)
		}
	}
}

func TestGiveLeft(t *testing.T) {
	for name, has := range map[string][]string{
		"a link":      {"@54321 d/", "x=", "d/f>TOP/x"},
		"a directory": {"@54321 d/", "d/f/"},
		"nothing":     {"@54321 d/"},
	} {
		top := tree(t, has...)
		before := state(t, top)
		must(t, giveDir(top+"/d", "f", owner{daemon, daemon}, false, true))
		if after := state(t, top); after != before {
			t.Errorf("%s: it changed\n%sto\n%s", name, before, after)
		}
	}
	top := tree(t, "@54321 d/", "shadow=x")
	must(t, os.Link(top+"/shadow", top+"/d/f"))
	must(t, giveDir(top+"/d", "f", owner{daemon, daemon}, false, true))
	if got := owners(t, top, "shadow"); got != "shadow 0" {
		t.Errorf("a file with another name was given: %s", got)
	}
}

// TestNoRoom checks that the relay is started where nothing can be written, unlike the gateway without a certificate.
func TestNoRoom(t *testing.T) {
	top := t.TempDir()
	flash := top + "/flash"
	must(t, os.Mkdir(flash, 0o755))
	must(t, syscall.Mount("flash", flash, "tmpfs", syscall.MS_RDONLY, "mode=755"))
	defer syscall.Unmount(flash, syscall.MNT_DETACH)
	common := "\toption enabled 1\n\toption state_dir '" + flash + "/state'\n\toption status_socket '" + top + "/run/sock'\n"
	relay := plan(t, Relay, "config relay\n"+common+"\toption gateway a:1\n\toption token 12345678\n\toption pin sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	if _, err := relay.Prepare(Files(top+"/made"), daemon, daemon, good); err != nil {
		t.Errorf("relay: %v", err)
	}
	gateway := plan(t, Gateway, "config gateway\n"+common)
	if _, err := gateway.Prepare(Files(top+"/made"), daemon, daemon, good); err == nil || !strings.HasPrefix(err.Error(), "gateway.state_dir: ") {
		t.Errorf("gateway: %v", err)
	}

	// With its certificate, it is started, too: even a chown that changes nothing fails there.
	must(t, syscall.Mount("flash", flash, "tmpfs", syscall.MS_REMOUNT, "mode=755"))
	must(t, os.Mkdir(flash+"/state", 0o700))
	must(t, os.Chown(flash+"/state", daemon, daemon))
	must(t, syscall.Mount("flash", flash, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "mode=755"))
	if _, err := gateway.Prepare(Files(top+"/made"), daemon, daemon, good); err != nil {
		t.Errorf("gateway with a certificate: %v", err)
	}
}
