// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"bquic/internal/accesslog"
	"bquic/internal/config"
	"bquic/internal/relay"
	"bquic/internal/system"
	"bquic/internal/uci"
)

// own are directories whose names mark them as the package's.
var own = []string{"/etc/bquic", "/var/log/bquic", "/var/run/bquic"}

// Files is the directory in which root makes the daemons' files, with a subdirectory for each daemon.
// Only root may write there.
type Files string

// DefaultFiles is OpenWrt's place for generated configurations.
const DefaultFiles Files = "/var/etc/bquic"

func (f Files) dir(role string) string    { return filepath.Join(string(f), role) }
func (f Files) config(role string) string { return filepath.Join(f.dir(role), "conf") }
func (f Files) fixed(role string) string  { return filepath.Join(f.dir(role), "fixed") }

// Load reads a configuration file and returns the plan for a role.
func Load(file, role string) (*Plan, *config.Config, error) {
	f, err := uci.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := config.New(f)
	if err != nil {
		return nil, nil, err
	}
	return newPlan(role, f, cfg, drive, resolve), cfg, nil
}

// resolve returns a path without symbolic links, if all of them are root's.
func resolve(path string) string {
	p, err := find(path, false)
	if err != nil {
		return path
	}
	p.close()
	return p.path
}

func isDir(path string) bool { return drive(path) != "" }

// drive returns the number of the device that a directory is on, "" if there is no such directory.
func drive(dir string) string {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return ""
	}
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Dev)
}

// Here reports whether this machine is an OpenWrt router, where an init script starts the daemons.
func Here() bool {
	_, err := os.Stat("/etc/rc.common")
	return err == nil
}

// User returns the user ID of the daemons on this router, as in the init script: root if there is no jail.
func User() (uid int) {
	if _, err := os.Stat("/sbin/ujail"); err != nil {
		return 0
	}
	u, err := user.Lookup("bquic")
	if err != nil {
		return 0
	}
	uid, _ = strconv.Atoi(u.Uid)
	return uid
}

// Check returns the error with which Prepare would refuse a daemon that runs as uid.
func (p *Plan) Check(uid int) error { return p.give(owner{uid: uid}, false) }

// Refuse returns the error with which Prepare would refuse a daemon, and changes nothing. An address that the daemon cannot listen
// on is an error only while the daemon runs, because a restart would end it. While the router boots, the address may appear later.
func (p *Plan) Refuse(files Files, uid int, check func() error) error {
	if mine := p.running(files); mine != nil {
		if err := p.canListen(mine); err != nil {
			return err
		}
	}
	if err := p.Check(uid); err != nil {
		return err
	}
	return check()
}

// Prepare makes the files and directories that the daemon needs. uid (0: root, without a jail) owns
// the daemon's directories and access log. root owns the other files, which gid may read. changed
// reports whether settings that a running daemon cannot change differ from before. After a mistake, the files stay as they are:
// the running daemon reads them if it is started again.
func (p *Plan) Prepare(files Files, uid, gid int, check func() error) (changed bool, err error) {
	if err := p.Refuse(files, uid, check); err != nil {
		return false, err
	}
	if err := p.give(owner{uid, gid}, true); err != nil {
		return false, err
	}
	// OpenWrt's acme makes this directory, which is in memory, only when it renews: after the jail. Without it, the
	// gateway serves everything else.
	if p.webroot != "" {
		if in, err := find(p.webroot+"/.well-known", true); err == nil {
			in.close()
		}
	}
	before, err := os.ReadFile(files.fixed(p.Role))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	changed = err != nil || string(before) != p.Fixed
	for _, f := range []struct {
		path string
		data []byte
	}{{files.config(p.Role), p.Config}, {files.fixed(p.Role), []byte(p.Fixed)}} {
		if err := write(f.path, f.data, gid); err != nil {
			return false, err
		}
	}
	return changed, nil
}

func (p *Plan) give(to owner, change bool) error {
	for _, d := range []struct{ option, dir, left string }{
		{"state_dir", p.state, relay.StateFile}, {"status_socket", filepath.Dir(p.socket), filepath.Base(p.socket)},
	} {
		if d.dir == "" {
			continue
		}
		// The socket may be in any directory in which the daemon can make one, such as /tmp.
		if d.option == "status_socket" && !slices.Contains(own, d.dir) && isDir(d.dir) {
			continue
		}
		err := giveDir(d.dir, d.left, to, slices.Contains(own, d.dir), change)
		if p.Role == Relay && d.option == "state_dir" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS)) {
			continue // it relays all the same, and says that it cannot keep the comparison
		}
		if err != nil {
			return fmt.Errorf("%s.%s: %w", p.Role, d.option, err)
		}
	}
	if p.accessLog == "" {
		return nil
	}
	// In a directory that is the package's or new, it can make the file again after a rotation.
	dir := filepath.Dir(p.accessLog)
	give := func() error { return giveFile(p.accessLog, to, change) }
	if slices.Contains(own, dir) || !isDir(dir) {
		give = func() error { return giveDir(dir, filepath.Base(p.accessLog), to, slices.Contains(own, dir), change) }
	}
	if err := give(); err != nil && !accesslog.ReadOnly(p.accessLog, err) {
		return fmt.Errorf("%s.access_log: %w", p.Role, err)
	}
	return nil
}

// write replaces a file, which gid may read, in a directory that belongs to root.
func write(name string, data []byte, gid int) error {
	p, err := find(name, true)
	if err != nil {
		return err
	}
	defer p.close()
	dir := filepath.Dir(p.path) // find has checked that it belongs to root all the way
	if err := os.Chown(dir, 0, gid); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		return err
	}
	return system.Replace(filepath.Join(dir, p.name), data, 0o640, gid)
}
