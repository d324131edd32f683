// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/processor"
	"bquic/internal/route"
)

// A Meter reads the traffic counters of devices.
type Meter struct{ conn *netlink.Conn }

// OpenMeter opens a Meter for the network namespace of this process.
func OpenMeter() (*Meter, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	return &Meter{conn}, nil
}

// Close releases the meter.
func (m *Meter) Close() error { return m.conn.Close() }

// Read returns the sum of the counters of all devices that exist.
func (m *Meter) Read(devices []string) (sum processor.Traffic, err error) {
	for _, name := range devices {
		msgs, err := route.Ask(m.conn, unix.RTM_GETLINK, 0, make([]byte, unix.SizeofIfInfomsg), text(unix.IFLA_IFNAME, name))
		if err != nil || len(msgs) == 0 {
			continue // the device is gone
		}
		t, err := readTraffic(msgs[0].Data)
		if err != nil {
			return sum, fmt.Errorf("counters of %s: %w", name, err)
		}
		sum.In.Bytes += t.In.Bytes
		sum.In.Packets += t.In.Packets
		sum.Out.Bytes += t.Out.Bytes
		sum.Out.Packets += t.Out.Packets
	}
	return sum, nil
}

// readTraffic parses the counters of a device (struct ifinfomsg, then IFLA_STATS64
// with struct rtnl_link_stats64, in include/uapi/linux/if_link.h).
func readTraffic(b []byte) (t processor.Traffic, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return t, fmt.Errorf("message of %d bytes is too short", len(b))
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return t, err
	}
	for attrs.Next() {
		if c := attrs.Bytes(); attrs.Type() == unix.IFLA_STATS64 && len(c) >= 32 {
			t.In.Packets, t.Out.Packets = binary.NativeEndian.Uint64(c), binary.NativeEndian.Uint64(c[8:])
			t.In.Bytes, t.Out.Bytes = binary.NativeEndian.Uint64(c[16:]), binary.NativeEndian.Uint64(c[24:])
			return t, nil
		}
	}
	if err := attrs.Err(); err != nil {
		return t, err
	}
	return t, errors.New("the kernel sent none")
}
