// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
)

// A routing is a set of routing rules and routes for packets with our marks. They have
// no owner in the kernel. So a shell that outlives this process removes them when the
// pipe to it is closed, for whatever reason.
type routing struct {
	steering
	guard *exec.Cmd
	pipe  io.Closer
}

// A steering is a set of routing rules by mark for one table, which has no other rules.
type steering struct {
	pref, table int // pref is the preference, unless others have smaller ones
	marks       []uint32
	local       bool // the table delivers all packets locally; else routes are added one by one
}

var clientMarks = []uint32{ClientMark, AnswerMark}

func toSockets(marks ...uint32) steering { return steering{rulePref, routeTable, marks, true} }
func toClients() steering                { return steering{clientPref, clientTable, clientMarks, false} }

func (s steering) add() (*routing, error) {
	_ = eachFamily(s.clear)
	r := &routing{steering: s, guard: exec.Command("sh", "-c", "trap '' HUP INT TERM; read -r _; "+strings.Join(s.undoing(), "; "))}
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
	if err := eachFamily(s.assert); err != nil {
		r.remove()
		return nil, fmt.Errorf("cannot add a routing rule: %w", err)
	}
	return r, nil
}

// Precede puts the routing rules before those that others have added since, and adds rules and routes again that others have removed. It must be
// called now and then, also because Alike needs to know whether others have rules, and Protected, whether the kernel has IPsec.
func (d *Diverter) Precede() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookForIPsec()
	d.bridge.mu.Lock()
	defer d.bridge.mu.Unlock()
	ruled := false
	err := eachFamily(func(conn *netlink.Conn, family byte, rules []policy) (err error) {
		for _, p := range rules {
			ruled = ruled || p.foreign() && (p.pref != 32766 || p.table != unix.RT_TABLE_MAIN) && (p.pref != 32767 || p.table != unix.RT_TABLE_DEFAULT)
		}
		for _, r := range []*routing{d.routing, d.bridge.routing} {
			if r != nil {
				err = errors.Join(err, r.assert(conn, family, rules))
			}
		}
		d.bridge.restore(conn, family)
		return err
	})
	d.ruled.Store(ruled)
	return err
}

// remove makes the guard remove the rules, and waits for it. The guard may have been killed.
func (r *routing) remove() {
	r.pipe.Close()
	_ = r.guard.Wait() // fails if a rule is already gone
	_ = eachFamily(r.clear)
}

// undoing returns the commands that remove the rules and the routes of each IP version.
func (s steering) undoing() (commands []string) {
	for _, family := range []string{"-4", "-6"} {
		for range s.marks {
			commands = append(commands, fmt.Sprintf("ip %s rule del table %d", family, s.table))
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
	return errors.Join(eachFamily(toSockets().clear), eachFamily(toClients().clear))
}

// eachFamily calls do for each IP version, with its routing rules.
func eachFamily(do func(conn *netlink.Conn, family byte, rules []policy) error) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, family := range families() {
		rules, err := policies(conn, family)
		if err == nil {
			err = do(conn, family, rules)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clear removes a family's rules and routes.
func (s steering) clear(conn *netlink.Conn, family byte, rules []policy) error {
	var errs []error
	for _, p := range rules {
		if p.table == uint32(s.table) {
			errs = append(errs, s.rule(conn, unix.RTM_DELRULE, family, p))
		}
	}
	if s.local {
		return errors.Join(append(errs, s.deliver(conn, unix.RTM_DELROUTE, family))...)
	}
	routes, err := route.All(conn, family)
	errs = append(errs, err)
	for _, r := range routes {
		if r.Table == uint32(s.table) && r.Target.IsValid() && len(r.Out) == 1 {
			if err := changeRoute(r.Target, r.Out[0], false); !errors.Is(err, unix.ESRCH) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// assert makes sure that a family's rules and its route exist, and that its rules come before all others: those that netifd
// adds have the preferences 1, 2, ... if they do not name one, and netifd removes all rules when it starts.
func (s steering) assert(conn *netlink.Conn, family byte, rules []policy) error {
	pref := uint32(s.pref)
	for _, p := range rules {
		if p.foreign() {
			pref = min(pref, max(p.pref, 1)-1)
		}
	}
	var errs []error
	for _, mark := range s.marks {
		errs = append(errs, s.rule(conn, unix.RTM_NEWRULE, family, policy{pref, 0, mark}))
	}
	for _, p := range rules {
		if p.table == uint32(s.table) && p.pref != pref {
			errs = append(errs, s.rule(conn, unix.RTM_DELRULE, family, p))
		}
	}
	if s.local {
		errs = append(errs, s.deliver(conn, unix.RTM_NEWROUTE, family))
	}
	return errors.Join(errs...)
}

// rule adds or removes a rule (struct fib_rule_hdr of include/uapi/linux/fib_rules.h).
func (s steering) rule(conn *netlink.Conn, kind netlink.HeaderType, family byte, p policy) error {
	return tell(conn, kind, []byte{family, 0, 0, 0, byte(s.table), 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0, 0},
		attr(unix.FRA_PRIORITY, native(p.pref)), attr(unix.FRA_FWMARK, native(p.mark)), attr(unix.FRA_FWMASK, native(ourBits)))
}

// deliver adds or removes the route that delivers packets locally (struct rtmsg of include/uapi/linux/rtnetlink.h).
func (s steering) deliver(conn *netlink.Conn, kind netlink.HeaderType, family byte) error {
	return tell(conn, kind, []byte{family, 0, 0, 0, byte(s.table), unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0},
		attr(unix.RTA_OIF, native(1))) // lo
}

// tell adds something that may be there already, or removes something that may be gone.
func tell(conn *netlink.Conn, kind netlink.HeaderType, header []byte, attrs ...netlink.Attribute) error {
	flags := netlink.Acknowledge
	if kind == unix.RTM_NEWRULE || kind == unix.RTM_NEWROUTE {
		flags |= netlink.Create | netlink.Excl
	}
	_, err := route.Ask(conn, kind, flags, header, attrs...)
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return nil
	case header[0] == unix.AF_INET6 && errors.Is(err, unix.EACCES): // lo has no IPv6 (net.ipv6.conf.all.disable_ipv6), so nothing to deliver
		return nil
	}
	return err
}

// A policy holds the relevant parts of a routing rule.
type policy struct{ pref, table, mark uint32 }

// foreign reports whether the rule is neither ours nor the one that comes first, for the table of the node's own addresses.
func (p policy) foreign() bool {
	return p.table != routeTable && p.table != clientTable && (p.pref != 0 || p.table != unix.RT_TABLE_LOCAL)
}

// policies returns all routing rules of a family.
func policies(conn *netlink.Conn, family byte) (rules []policy, err error) {
	msgs, err := route.Ask(conn, unix.RTM_GETRULE, netlink.Dump, append([]byte{family}, make([]byte, 11)...))
	for _, m := range msgs {
		rules = append(rules, readPolicy(m.Data))
	}
	return rules, err
}

func readPolicy(b []byte) (p policy) {
	if len(b) < 12 {
		return p
	}
	p.table = uint32(b[4])
	attrs, err := netlink.NewAttributeDecoder(b[12:])
	if err != nil {
		return p
	}
	for attrs.Next() {
		if len(attrs.Bytes()) != 4 {
			continue
		}
		switch attrs.Type() {
		case unix.FRA_PRIORITY:
			p.pref = attrs.Uint32()
		case unix.FRA_TABLE:
			p.table = attrs.Uint32()
		case unix.FRA_FWMARK:
			p.mark = attrs.Uint32()
		}
	}
	return p
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

// EarlyDemux reports whether the kernel looks for a packet's socket before NAT and rules have seen all of it (net.ipv4.tcp_early_demux). If a
// client uses one port for several targets, it then delivers packets of one connection to the socket of another: NAT has given the later one
// another port. Linux notices that (nf_nat_proto.c, nf_nat_inet_port_was_mangled), but not if the socket is transparent, as the relay's are.
func EarlyDemux() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_early_demux")
	return err == nil && strings.TrimSpace(string(text)) != "0"
}
