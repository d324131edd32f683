// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A place is a name in an open directory that only root can change. So no other user can
// redirect an operation on it with a symbolic link.
type place struct {
	dir  *os.File // O_PATH
	name string
	path string       // with symbolic links resolved
	stat *unix.Stat_t // nil: does not exist
}

func (p *place) close() { p.dir.Close() }

const maxLinks = 40 // the kernel's MAXSYMLINKS

// find walks to an absolute path, and makes the directories above it if create is set.
// Each directory must belong to root, and be writable by no other user unless it is
// sticky, like /tmp. find follows only symbolic links that belong to root, so it ignores
// what others have put into a sticky directory.
//
// If a directory above is missing and create is not set, the place is in the last
// directory that exists, and has no stat.
func find(name string, create bool) (_ *place, err error) {
	dir, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			dir.Close()
		}
	}()
	enter := func(component string) error {
		fd, err := unix.Openat(int(dir.Fd()), component, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		dir.Close()
		dir = os.NewFile(uintptr(fd), component)
		return nil
	}
	at, rest := "/", components(name)
	for links := 0; len(rest) > 0; {
		component, last := rest[0], len(rest) == 1
		here := path.Join(at, component)
		fail := func(err error) error { return fmt.Errorf("%s: %w", here, err) }
		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), component, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT) && (last || !create):
			return &place{dir: dir, name: component, path: path.Join(append([]string{at}, rest...)...)}, nil
		case errors.Is(err, unix.ENOENT):
			if err := unix.Mkdirat(int(dir.Fd()), component, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return nil, fail(err)
			}
			continue
		case err != nil:
			return nil, fail(err)
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			if st.Uid != 0 {
				return nil, fail(fmt.Errorf("a symbolic link of user %d: only root's links are followed", st.Uid))
			}
			if links++; links > maxLinks {
				return nil, fail(unix.ELOOP)
			}
			target, err := readlinkat(dir, component)
			if err != nil {
				return nil, fail(err)
			}
			rest = append(components(target), rest[1:]...)
			if path.IsAbs(target) {
				at = "/"
				if err := enter("/"); err != nil {
					return nil, err
				}
			}
			continue
		case last && component != "..":
			return &place{dir: dir, name: component, path: here, stat: &st}, nil
		}
		if err := enter(component); err != nil {
			return nil, fail(err)
		}
		// Check the directory that was opened, even if the name now refers to another one.
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
			return nil, fail(err)
		}
		if err := rootOnly(&st); err != nil {
			return nil, fail(err)
		}
		at, rest = here, rest[1:]
	}
	return nil, systemDirectory(name)
}

func systemDirectory(name string) error {
	return fmt.Errorf("%s is a system directory: name one below it that is for the daemon alone", name)
}

func components(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

func readlinkat(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// rootOnly returns an error if users other than root may change the content of a directory.
func rootOnly(st *unix.Stat_t) error {
	if st.Uid != 0 {
		return fmt.Errorf("belongs to user %d, so root writes nothing below it", st.Uid)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return errors.New("users other than root may write to it, so root does not")
	}
	return nil
}

// An owner is the user and group that a daemon runs as: root if there is no jail.
type owner struct{ uid, gid int }

func (o owner) root() bool { return o.uid == 0 }

// giveDir transfers the ownership of a directory. It makes the directory if it does not
// exist. If the directory has content, it must be the package's (own), which may have the user
// ID that the daemon had on the router of a backup.
// The owner of the content does not change, except for the file named left. If change is not set, giveDir only checks.
func giveDir(dir, left string, to owner, own, change bool) error {
	p, err := find(dir, change)
	if err != nil {
		return err
	}
	defer p.close()
	// Directories of the system: /etc, /mnt, and links to them, such as /var on OpenWrt.
	if filepath.Dir(p.path) == "/" {
		return systemDirectory(dir)
	}
	if p.stat == nil {
		if !change {
			return nil
		}
		if err := unix.Mkdirat(int(p.dir.Fd()), p.name, 0o700); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	f, err := p.openDir()
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if to.root() {
		return nil
	}
	names, err := f.Readdirnames(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if len(names) > 0 && !own && int(st.Uid) != to.uid {
		return fmt.Errorf("%s belongs to user %d and is not empty: name an empty directory, or one that is for the daemon alone", dir, st.Uid)
	}
	if !change {
		return nil
	}
	giveLeft(int(f.Fd()), left, to)
	if int(st.Uid) == to.uid && int(st.Gid) == to.gid {
		return nil // flash that is full, or read-only after an error, may refuse even this
	}
	return f.Chown(to.uid, to.gid)
}

// giveLeft transfers the ownership of a file or socket in the daemon's directory, which root has left there, or the
// daemon of the router of a backup. If it has another name, the daemon may have linked it from elsewhere.
func giveLeft(dir int, name string, to owner) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	if kind := st.Mode & unix.S_IFMT; (kind == unix.S_IFREG || kind == unix.S_IFSOCK) && st.Nlink == 1 {
		_ = unix.Fchownat(fd, "", to.uid, to.gid, unix.AT_EMPTY_PATH)
	}
	_ = unix.Close(fd)
}

// openDir opens the directory at a place.
func (p *place) openDir() (*os.File, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

// giveFile transfers the ownership of a file. It makes an empty file if there is none. It refuses
// a file with content that belongs to another user. If the directory belongs to the new owner, it
// does nothing, because the daemon can make the file itself. If change is not set, it only checks.
func giveFile(name string, to owner, change bool) error {
	p, err := find(filepath.Dir(name), change)
	if err != nil {
		return err
	}
	defer p.close()
	if p.stat == nil && !change {
		return nil
	}
	dir, err := p.openDir()
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(name), err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if to.root() || int(st.Uid) == to.uid {
		return nil
	}
	if err := rootOnly(&st); err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(name), err)
	}
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	if change {
		flags |= unix.O_CREAT
	}
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(name), flags, 0o640)
	if errors.Is(err, unix.ENOENT) && !change {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s: not a regular file", name)
	case int(st.Uid) == to.uid:
		return nil
	case st.Uid != 0 || st.Size > 0 || st.Nlink > 1:
		return fmt.Errorf("%s belongs to user %d and is not empty: remove it, or name another file", name, st.Uid)
	case !change:
		return nil
	}
	return f.Chown(to.uid, to.gid)
}
