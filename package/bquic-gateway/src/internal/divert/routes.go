// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A routing is the rules and the route that deliver packets with our marks locally. The
// kernel knows no owner of these: a shell outlives this process, and removes them when
// the pipe to it is closed, however that comes about.
type routing struct {
	guard *exec.Cmd
	pipe  io.Closer
}

func addRouting(marks []uint32) (*routing, error) {
	_ = Clean()
	r := &routing{guard: exec.Command("sh", "-c", "trap '' HUP INT TERM; read -r _; "+strings.Join(undoing(len(marks)), "; "))}
	pipe, err := r.guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.pipe = pipe
	// Not in the group that a terminal or a supervisor signals.
	r.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := r.guard.Start(); err != nil {
		return nil, fmt.Errorf("cannot guard the routing rules: %w", err)
	}
	if err := changeRouting(marks, true); err != nil {
		r.remove()
		return nil, fmt.Errorf("cannot add a routing rule: %w", err)
	}
	return r, nil
}

// remove has the guard do its work, and waits for it.
func (r *routing) remove() {
	r.pipe.Close()
	_ = r.guard.Wait() // ip complains about what is not there
}

// undoing are the commands that remove n rules of each IP version, and the route.
func undoing(n int) (commands []string) {
	for _, family := range []string{"-4", "-6"} {
		for range n {
			commands = append(commands, fmt.Sprintf("ip %s rule del pref %d", family, rulePref))
		}
		commands = append(commands, fmt.Sprintf("ip %s route flush table %d", family, routeTable))
	}
	return commands
}

// Clean removes what a process left that was killed, and its guard with it: the rules
// of routing.
func Clean() error { return changeRouting([]uint32{sentAgain, toSocket}, false) }

// changeRouting adds or removes the rules, and the route, for both IP versions.
func changeRouting(marks []uint32, add bool) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	rule, route, flags := netlink.HeaderType(unix.RTM_DELRULE), netlink.HeaderType(unix.RTM_DELROUTE), netlink.Request|netlink.Acknowledge
	if add {
		rule, route, flags = unix.RTM_NEWRULE, unix.RTM_NEWROUTE, flags|netlink.Create|netlink.Excl
	}
	var errs []error
	do := func(kind netlink.HeaderType, header []byte, attrs *netlink.AttributeEncoder) {
		b, err := attrs.Encode()
		if err == nil {
			_, err = conn.Execute(netlink.Message{Header: netlink.Header{Type: kind, Flags: flags}, Data: append(header, b...)})
		}
		if !add && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)) { // there is none
			err = nil
		}
		errs = append(errs, err)
	}
	for _, family := range families() {
		for _, mark := range marks {
			attrs := netlink.NewAttributeEncoder()
			attrs.Uint32(unix.FRA_PRIORITY, rulePref)
			attrs.Uint32(unix.FRA_FWMARK, mark)
			attrs.Uint32(unix.FRA_FWMASK, ourBits)
			attrs.Uint32(unix.FRA_TABLE, routeTable)
			// struct fib_rule_hdr of include/uapi/linux/fib_rules.h
			do(rule, []byte{family, 0, 0, 0, routeTable, 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0, 0}, attrs)
		}
		attrs := netlink.NewAttributeEncoder()
		attrs.Uint32(unix.RTA_OIF, 1) // lo
		// struct rtmsg of include/uapi/linux/rtnetlink.h
		do(route, []byte{family, 0, 0, 0, routeTable, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}, attrs)
	}
	return errors.Join(errs...)
}

func families() []byte {
	if HasIPv6() {
		return []byte{unix.AF_INET, unix.AF_INET6}
	}
	return []byte{unix.AF_INET}
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
