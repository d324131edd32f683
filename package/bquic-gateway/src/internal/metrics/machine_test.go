// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMachine checks that the memory of a container, or the limit of a control group or of one above it, counts as the machine's.
func TestMachine(t *testing.T) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	whole := uint64(info.Totalram) * uint64(info.Unit)
	for _, test := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"no files", nil, whole},
		{"a machine", map[string]string{"proc/meminfo": "MemTotal:       999999999999 kB\n", "proc/self/cgroup": "0::/a.slice/b.service\n", "cgroup/a.slice/memory.max": "max\n"}, whole},
		{"LXC", map[string]string{"proc/meminfo": "MemTotal:         20480 kB\nMemFree:             1 kB\n"}, 20 << 20},
		{"a service", map[string]string{"proc/self/cgroup": "1:name=systemd:/x\n0::/a.slice/b.service\n", "cgroup/a.slice/b.service/memory.max": "10485760\n"}, 10 << 20},
		{"its slice", map[string]string{"proc/self/cgroup": "0::/a.slice/b.service\n", "cgroup/a.slice/b.service/memory.max": "max\n", "cgroup/a.slice/memory.max": "9437184\n"}, 9 << 20},
		{"a container", map[string]string{"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "8388608\n"}, 8 << 20},
		{"a service, version 1", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/a.slice/b.service\n1:name=systemd:/y\n0::/z\n", "cgroup/memory/a.slice/b.service/memory.limit_in_bytes": "10485760\n",
			"cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 10 << 20},
		{"a container, version 1", map[string]string{"proc/self/cgroup": "4:memory:/docker/0123\n", "cgroup/memory/memory.limit_in_bytes": "8388608\n"}, 8 << 20},
		{"of another container", map[string]string{"proc/self/cgroup": "0::/../x\n", "x/memory.max": "1\n", "cgroup/memory.max": "1\n"}, whole},
	} {
		dir := t.TempDir()
		for name, text := range test.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := machine(dir+"/proc", dir+"/cgroup"); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
