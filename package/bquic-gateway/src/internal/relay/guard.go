// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guard notices that others have changed or removed our nftables table, as
// "nft flush ruleset" does. The kernel counts the transactions of all of nftables
// (NFT_MSG_GETGEN): as long as nobody makes any, looking is one question to the
// kernel, and no process is started.
type guard struct {
	generation uint32 // when content was read
	content    string // of the table, as nft lists it; "": not known
	doubts     int    // times in a row that content was not known
}

const (
	guardInterval = time.Second
	// maxDoubts is after how many of them the table is believed to be ours: some
	// other program changes nftables all the time.
	maxDoubts = 3
)

// apply makes the table as script has it.
func (g *guard) apply(script string) error {
	before, _ := generation()
	if err := nft(script); err != nil {
		return err
	}
	content, err := list()
	g.generation, _ = generation()
	// Ours was the only transaction, so this is our table.
	if err == nil && (g.generation == before+1 || g.doubts == maxDoubts) {
		g.content, g.doubts = content, 0
	} else {
		g.content = ""
		g.doubts = min(g.doubts+1, maxDoubts)
	}
	return nil
}

// intact reports whether the table is as apply made it. Where the kernel does not
// say, it is taken to be.
func (g *guard) intact() bool {
	now, err := generation()
	if err != nil || now == g.generation && g.content != "" {
		return true
	}
	if g.content == "" {
		return false
	}
	content, err := list()
	g.generation = now
	return err == nil && content == g.content
}

func list() (string, error) {
	out, err := exec.Command("nft", "-n", "list", "table", "inet", table).Output()
	return string(out), err
}

// generation returns the number of the ruleset (net/netfilter/nf_tables_api.c,
// nf_tables_getgen).
func generation() (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, err
	}
	// struct nlmsghdr and struct nfgenmsg, of family AF_UNSPEC and version 0.
	request := make([]byte, unix.NLMSG_HDRLEN+4)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN || len(m.Data) < 4 {
			continue
		}
		for attrs := m.Data[4:]; len(attrs) >= unix.SizeofNlAttr; {
			length := int(binary.NativeEndian.Uint16(attrs))
			if length < unix.SizeofNlAttr || length > len(attrs) {
				break
			}
			if binary.NativeEndian.Uint16(attrs[2:]) == unix.NFTA_GEN_ID && length == unix.SizeofNlAttr+4 {
				return binary.BigEndian.Uint32(attrs[unix.SizeofNlAttr:]), nil
			}
			attrs = attrs[min(len(attrs), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
	return 0, errors.New("the kernel does not count changes of nftables")
}
