// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A routing is the rule and route that deliver packets of transparent sockets. The
// kernel knows no owner of these: a shell outlives this process, and removes them when
// the pipe to it is closed, however that comes about.
type routing struct {
	guard *exec.Cmd
	pipe  io.Closer
}

func addRoutes() (*routing, error) {
	var undo []string
	for _, family := range families() {
		for _, args := range routes(family, "del") {
			undo = append(undo, "ip "+strings.Join(args, " "))
		}
	}
	r := &routing{guard: exec.Command("sh", "-c", "trap '' HUP INT TERM; read -r _; "+strings.Join(undo, "; "))}
	pipe, err := r.guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.pipe = pipe
	// Not of the group that a terminal or a supervisor signals.
	r.guard.SysProcAttr = ownSession()
	if err := r.guard.Start(); err != nil {
		return nil, fmt.Errorf("cannot guard the routing rules: %w", err)
	}
	for _, family := range families() {
		for _, args := range routes(family, "add") {
			if err := ip(args...); err != nil {
				r.remove()
				return nil, err
			}
		}
	}
	return r, nil
}

// remove has the guard do its work, and waits for it.
func (r *routing) remove() {
	r.pipe.Close()
	_ = r.guard.Wait() // ip complains about what is not there
}

// routes are the arguments of ip(8) that add or delete the rule and the route.
func routes(family, verb string) [][]string {
	mark := "0x" + strconv.FormatUint(toSocket, 16)
	return [][]string{
		{family, "rule", verb, "pref", rulePref, "fwmark", mark, "table", routeTable},
		{family, "route", verb, "local", "default", "dev", "lo", "table", routeTable},
	}
}

// removeRoutes removes what a killed process left whose guard was killed, too.
func removeRoutes() {
	for _, family := range families() {
		for _, args := range routes(family, "del") {
			for range 16 { // a rule can be there more than once
				if ip(args...) != nil {
					break
				}
			}
		}
	}
}

func families() []string {
	if HasIPv6() {
		return []string{"-4", "-6"}
	}
	return []string{"-4"}
}

// HasIPv6 reports whether the kernel has IPv6 at all.
func HasIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func ip(args ...string) error { return run(exec.Command("ip", args...)) }

// run returns the first line that cmd complained with.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n")); len(line) > 0 {
		err = errors.New(string(line))
	}
	return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
}
