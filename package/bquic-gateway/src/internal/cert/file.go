// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile is the limit on a PEM file, in bytes: several times Debian's list of all authorities.
const maxFile = 1 << 20

// readFile reads a regular file. The configuration, and who uses LuCI, may name any file, such as /dev/zero.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe without a writer blocks nobody
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return data, err
}
