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

// A routing is a set of routing rules and routes for packets with our marks. They have
// no owner in the kernel. So a shell that outlives this process removes them when the
// pipe to it is closed, for whatever reason.
type routing struct {
	guard *exec.Cmd
	pipe  io.Closer
}

// A steering is a set of routing rules by mark, with one preference, for one table.
type steering struct {
	pref, table int
	marks       []uint32
	local       bool // the table delivers all packets locally; else routes are added one by one
}

var clientMarks = []uint32{ClientMark, AnswerMark}

func toSockets(marks ...uint32) steering { return steering{rulePref, routeTable, marks, true} }
func toClients() steering                { return steering{clientPref, clientTable, clientMarks, false} }

func (s steering) add() (*routing, error) {
	_ = s.change(false)
	r := &routing{guard: exec.Command("sh", "-c", "trap '' HUP INT TERM; read -r _; "+strings.Join(s.undoing(), "; "))}
	pipe, err := r.guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.pipe = pipe
	// Keep the guard out of the process group that a terminal or a supervisor signals.
	r.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := r.guard.Start(); err != nil {
		return nil, fmt.Errorf("cannot guard the routing rules: %w", err)
	}
	if err := s.change(true); err != nil {
		r.remove()
		return nil, fmt.Errorf("cannot add a routing rule: %w", err)
	}
	return r, nil
}

// remove makes the guard remove the rules, and waits for it.
func (r *routing) remove() {
	r.pipe.Close()
	_ = r.guard.Wait() // fails if a rule is already gone
}

// undoing returns the commands that remove the rules and the routes of each IP version.
func (s steering) undoing() (commands []string) {
	for _, family := range []string{"-4", "-6"} {
		for range s.marks {
			commands = append(commands, fmt.Sprintf("ip %s rule del pref %d", family, s.pref))
		}
		commands = append(commands, fmt.Sprintf("ip %s route flush table %d", family, s.table))
	}
	return commands
}

// Clean removes the routing rules that are left behind if a process was killed together
// with its guard. It does nothing while a process owns the table.
func Clean() error {
	if owned() {
		return nil
	}
	return errors.Join(toSockets(sentAgain, toSocket).change(false), toClients().change(false))
}

// change adds or removes the rules and the route for both IP versions.
func (s steering) change(add bool) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	rule, route, flags := netlink.HeaderType(unix.RTM_DELRULE), netlink.HeaderType(unix.RTM_DELROUTE), netlink.Acknowledge
	if add {
		rule, route, flags = unix.RTM_NEWRULE, unix.RTM_NEWROUTE, flags|netlink.Create|netlink.Excl
	}
	var errs []error
	do := func(kind netlink.HeaderType, header []byte, attrs ...attribute) {
		_, err := ask(conn, kind, flags, header, attrs...)
		if !add && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)) { // it does not exist
			err = nil
		}
		if header[0] == unix.AF_INET6 && errors.Is(err, unix.EACCES) { // lo has no IPv6 (net.ipv6.conf.all.disable_ipv6), so nothing to deliver
			err = nil
		}
		errs = append(errs, err)
	}
	for _, family := range families() {
		for _, mark := range s.marks {
			// struct fib_rule_hdr of include/uapi/linux/fib_rules.h
			do(rule, []byte{family, 0, 0, 0, byte(s.table), 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0, 0},
				attr(unix.FRA_PRIORITY, native(uint32(s.pref))), attr(unix.FRA_FWMARK, native(mark)),
				attr(unix.FRA_FWMASK, native(ourBits)), attr(unix.FRA_TABLE, native(uint32(s.table))))
		}
		if s.local {
			// struct rtmsg of include/uapi/linux/rtnetlink.h
			do(route, []byte{family, 0, 0, 0, byte(s.table), unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0},
				attr(unix.RTA_OIF, native(1))) // lo
		}
	}
	if !s.local && !add {
		errs = append(errs, s.flush(conn))
	}
	return errors.Join(errs...)
}

// flush removes the routes of the table.
func (s steering) flush(conn *netlink.Conn) error {
	var errs []error
	for _, family := range families() {
		routes, err := allRoutes(conn, family)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.table != uint32(s.table) || !r.target.IsValid() || len(r.out) != 1 {
				continue
			} else if err := changeRoute(r.target, r.out[0], false); !errors.Is(err, unix.ESRCH) {
				errs = append(errs, err)
			}
		}
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
