// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nexthops returns a default route with several next hops.
func nexthops(t testing.TB) []byte {
	t.Helper()
	hop := func(index uint32) []byte {
		return binary.NativeEndian.AppendUint32(append(binary.NativeEndian.AppendUint16(nil, unix.SizeofRtNexthop), 0, 0), index)
	}
	b, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.RTA_TABLE, Data: binary.NativeEndian.AppendUint32(nil, unix.RT_TABLE_MAIN)},
		{Type: unix.RTA_MULTIPATH, Data: append(hop(3), hop(5)...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_COMPAT, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, b...)
}

func TestRead(t *testing.T) {
	r := read(nexthops(t))
	if r.Bits != 0 || r.Table != unix.RT_TABLE_MAIN || r.Kind != unix.RTN_UNICAST || !slices.Equal(r.Out, []int{3, 5}) {
		t.Errorf("read %+v", r)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(nexthops(f))
	for _, length := range []byte{0, 200} { // of the first hop
		b := nexthops(f)
		b[len(b)-2*unix.SizeofRtNexthop] = length
		f.Add(b)
	}
	f.Add(nexthops(f)[:unix.SizeofRtMsg-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		if r := read(b); len(r.Out) > len(b) {
			t.Errorf("%d devices in %d bytes", len(r.Out), len(b))
		}
	})
}
