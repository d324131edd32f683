// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine returns the size of the memory that this process may use, in bytes: the machine's, or less in a container or in a control group
// with a limit. Beyond that, the kernel kills the process.
func Machine() uint64 { return machine("/proc", "/sys/fs/cgroup") }

func machine(proc, groups string) uint64 {
	least := uint64(64 << 20) // the least that bquic supports
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		least = uint64(info.Totalram) * uint64(info.Unit)
	}
	note := func(text string, unit uint64) {
		if n, err := strconv.ParseUint(text, 10, 53); err == nil && n > 0 {
			least = min(least, n*unit)
		}
	}
	if words := strings.Fields(read(proc + "/meminfo")); len(words) > 1 && words[0] == "MemTotal:" {
		note(words[1], 1<<10) // a container of LXC sees its own here
	}
	for line := range strings.Lines(read(proc + "/self/cgroup")) { // cgroups(7): number, controllers, path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		top, file := groups, "/memory.max" // version 2; or "max"
		if slices.Contains(strings.Split(fields[1], ","), "memory") {
			top, file = groups+"/memory", "/memory.limit_in_bytes" // without a limit, it has more than 53 bits
		} else if fields[1] != "" {
			continue
		}
		// A container may see the path that its group has outside; its own group is the top then.
		for dir := filepath.Join(top, fields[2]); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			note(strings.TrimSpace(read(dir+file)), 1)
		}
	}
	return least
}

// read returns the content of a file, "" if there is none.
func read(name string) string {
	data, _ := os.ReadFile(name)
	return string(data)
}
