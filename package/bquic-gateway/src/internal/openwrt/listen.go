// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"bquic/internal/status"
	"bquic/internal/system"
)

// An address is an address that the daemon listens on.
type address struct {
	option string // the option that sets it
	host   string // "": all addresses of the machine
	port   string
	udp    bool // as well as TCP
}

func (p *Plan) listen(option, addr string, udp bool) {
	if addr == "" {
		return
	}
	host, port, _ := net.SplitHostPort(addr) // config.Parse has checked it
	p.addresses = append(p.addresses, address{option, host, port, udp})
}

// CheckListen returns an error that names the addresses that the daemon cannot
// listen on, because another program uses the port or this machine has no such
// address. A port that the running daemon itself uses is not an error.
func (p *Plan) CheckListen(files Files) error { return p.canListen(p.running(files)) }

// canListen is CheckListen, where the running daemon has these ports.
func (p *Plan) canListen(mine map[string]bool) error {
	var errs []error
	for _, a := range p.addresses {
		port := a.port
		if mine[port] { // any port shows whether the machine has the address
			port = "0"
		}
		if err := a.try(net.JoinHostPort(a.host, port)); err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: cannot listen on %s: %w", p.Role, a.option, net.JoinHostPort(a.host, a.port), system.Cause(err)))
		}
	}
	return errors.Join(errs...)
}

func (a address) try(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	l.Close()
	if !a.udp {
		return nil
	}
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// running returns the ports with which the running daemon was started, or nil
// if it does not run.
func (p *Plan) running(files Files) map[string]bool {
	data, err := os.ReadFile(files.fixed(p.Role))
	if err != nil {
		return nil
	}
	ports := make(map[string]bool)
	answers := false
	for line := range strings.Lines(string(data)) {
		name, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		value, err := strconv.Unquote(quoted)
		if err != nil {
			continue
		}
		if name == "status_socket" {
			_, err := status.Read(value)
			answers = err == nil
		} else if _, port, err := net.SplitHostPort(value); err == nil {
			ports[port] = true
		} else if name == "port" {
			ports[value] = true
		}
	}
	if !answers {
		return nil
	}
	return ports
}
