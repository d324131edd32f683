// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Replace replaces a file atomically: even after a power cut, readers find the old file or the new one. The directory must belong to
// this process's user, or to root. The file gets a group unless gid is -1. A killed process leaves at most one other file behind.
func Replace(name string, data []byte, mode fs.FileMode, gid int) (err error) {
	made := name + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chown(-1, gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(made, name)
	}
	if err != nil {
		os.Remove(made)
	}
	return err
}

// Cause returns the kernel's error without the address, which net repeats.
func Cause(err error) error {
	var syscall *os.SyscallError
	if errors.As(err, &syscall) {
		return syscall.Err
	}
	return err
}
