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

	"bquic/internal/config"
	"bquic/internal/uci"
)

// own are directories that are the package's by their names.
var own = []string{"/etc/bquic", "/var/log/bquic", "/var/run/bquic"}

// Files is where root keeps what it makes for the daemons, a directory for each:
// nobody else may write there.
type Files string

// DefaultFiles is OpenWrt's place for configurations that are made.
const DefaultFiles Files = "/var/etc/bquic"

func (f Files) dir(role string) string    { return filepath.Join(string(f), role) }
func (f Files) config(role string) string { return filepath.Join(f.dir(role), "conf") }
func (f Files) fixed(role string) string  { return filepath.Join(f.dir(role), "fixed") }

// Load reads a configuration for a role.
func Load(file, role string) (*Plan, *config.Config, error) {
	f, err := uci.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := config.New(f)
	if err != nil {
		return nil, nil, err
	}
	return New(role, f, cfg, isDir), cfg, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// User returns who the daemons run as on this router: as the init script has it,
// root where there is no jail.
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

// Check says what Prepare would refuse to a daemon that runs as a user.
func (p *Plan) Check(uid int) error { return p.give(owner{uid: uid}, false) }

// Prepare makes what the daemon needs: its directories and its access log, which
// become the user's (0: root, where no jail keeps the daemon in), and files
// of root's, which the user's group may read. It tells whether what a running
// daemon cannot change is another than before. Addresses that cannot be had are an error
// only while the daemon runs, on others: it would end. At the router's start
// they may come later.
func (p *Plan) Prepare(files Files, uid, gid int) (changed bool, err error) {
	if p.running(files) != nil {
		if err := p.CheckListen(files); err != nil {
			return false, err
		}
	}
	to := owner{uid, gid}
	if err := p.give(to, true); err != nil {
		return false, err
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
		if err := write(f.path, f.data, to.gid); err != nil {
			return false, err
		}
	}
	return changed, nil
}

func (p *Plan) give(to owner, change bool) error {
	for _, d := range []struct{ option, dir string }{{"state_dir", p.state}, {"status_socket", filepath.Dir(p.socket)}} {
		if d.dir == "" {
			continue
		}
		// A socket may lie wherever the daemon can make one, as in /tmp.
		if d.option == "status_socket" && !slices.Contains(own, d.dir) && isDir(d.dir) {
			continue
		}
		if err := giveDir(d.dir, to, slices.Contains(own, d.dir), change); err != nil {
			return fmt.Errorf("%s.%s: %w", p.Role, d.option, err)
		}
	}
	if p.accessLog == "" {
		return nil
	}
	// Its directory, too, where that is the package's or new: to make the file anew after a rotation.
	if dir := filepath.Dir(p.accessLog); slices.Contains(own, dir) || !isDir(dir) {
		if err := giveDir(dir, to, slices.Contains(own, dir), change); err != nil {
			return fmt.Errorf("%s.access_log: %w", p.Role, err)
		}
	}
	if err := giveFile(p.accessLog, to, change); err != nil {
		return fmt.Errorf("%s.access_log: %w", p.Role, err)
	}
	return nil
}

// write replaces a file in a directory of root's, which the group may read.
func write(name string, data []byte, gid int) error {
	p, err := find(name, true)
	if err != nil {
		return err
	}
	defer p.close()
	dir := filepath.Dir(p.path) // root's all the way, as found
	if err := os.Chown(dir, 0, gid); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, p.name+".")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Chown(0, gid)
	}
	if err == nil {
		err = f.Chmod(0o640)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, p.name))
	}
	return err
}
