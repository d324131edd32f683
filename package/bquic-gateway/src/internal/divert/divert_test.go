// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/processor"
)

// The packets' addresses are 10.0.0.2, 203.0.113.2, fd00::2 and 2001:db8::2.
const (
	syn4 = "45000028000040003f0600000a000002cb007102" + "d4310050000000010000000050020400" + "00000000"
	syn6 = "600000000014063f" + "fd000000000000000000000000000002" + "20010db8000000000000000000000002" + "d4310050000000010000000050020400" + "00000000"
	udp4 = "45000020000040003f1100000a000002cb007102" + "d4310035000c0000" + "71756572"
)

// signable returns a SYN of IPv4 with 16 bytes of options.
func signable(options string) string {
	return strings.Replace(syn4[:80], "4500002800004000", "4500003800004000", 1)[:64] + "90020400" + "00000000" + options
}

func TestReadTraffic(t *testing.T) {
	stats := make([]byte, 96) // struct rtnl_link_stats64
	for i, n := range []uint64{11, 22, 33 << 32, 44 << 32} {
		binary.NativeEndian.PutUint64(stats[8*i:], n)
	}
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.IFLA_IFNAME, Data: []byte("mesh\x00")}, {Type: unix.IFLA_STATS64, Data: stats},
	})
	if err != nil {
		t.Fatal(err)
	}
	message := append(make([]byte, unix.SizeofIfInfomsg), attrs...)
	want := processor.Traffic{
		In: processor.Count{Bytes: 33 << 32, Packets: 11}, Out: processor.Count{Bytes: 44 << 32, Packets: 22},
	}
	if got, err := readTraffic(message); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range message[:len(message)-64] {
		if got, err := readTraffic(message[:n]); err == nil {
			t.Errorf("%d bytes of a message are %+v", n, got)
		}
	}
}

func FuzzReadTraffic(f *testing.F) {
	f.Add(make([]byte, unix.SizeofIfInfomsg+8))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = readTraffic(b) })
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, packet   string
		client, target string // "": never taken
		payload        string
	}{
		{"SYN of IPv4", syn4, "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"SYN of IPv6", syn6, "[fd00::2]:54321", "[2001:db8::2]:80", ""},
		{"expedited, IPv4", "45b8" + syn4[4:], "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"expedited, IPv6", "6b80" + syn6[4:], "[fd00::2]:54321", "[2001:db8::2]:80", ""},
		{"options of TCP", signable("020405b4" + "01" + "030307" + "00000000" + "00000000"), "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"an option after the last one", signable("020405b4" + "00" + "1312" + strings.Repeat("00", 9)), "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"an option that is too long", signable("020405b4" + "01" + "03ff" + strings.Repeat("00", 9)), "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"TCP-MD5", signable("020405b4" + "01" + "1308" + strings.Repeat("00", 9)), "", "", ""},
		{"TCP-AO", signable("01011d0e" + strings.Repeat("00", 12)), "", "", ""},
		{"Multipath TCP", signable("020405b4" + "1e040181" + strings.Repeat("00", 8)), "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"a further path of Multipath TCP", signable("020405b4" + "1e0c1001" + strings.Repeat("07", 8)), "", "", ""},
		{"half an option of Multipath TCP", signable("020405b4" + "1e02" + "1001" + strings.Repeat("00", 8)), "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"UDP", udp4, "10.0.0.2:54321", "203.0.113.2:53", "quer"},
		{"a padded datagram", udp4 + "0000", "10.0.0.2:54321", "203.0.113.2:53", "quer"},
		{"a padded SYN of IPv4", syn4 + "000000000000", "10.0.0.2:54321", "203.0.113.2:80", ""},
		{"a padded SYN of IPv6", syn6 + "0000", "[fd00::2]:54321", "[2001:db8::2]:80", ""},
		{"a fragment", strings.Replace(udp4, "00004000", "00002000", 1), "", "", ""},
		{"a later fragment", strings.Replace(udp4, "00004000", "00000010", 1), "", "", ""},
		{"a datagram that is cut off", udp4[:len(udp4)-2], "", "", ""},
		{"a UDP length below its header's", strings.Replace(udp4, "000c0000", "00070000", 1), "", "", ""},
		{"ICMP", strings.Replace(syn4, "3f06", "3f01", 1), "", "", ""},
		{"IPv6 with an extension header", strings.Replace(syn6, "063f", "003f", 1), "", "", ""},
		{"an IPv4 header beyond the packet", "4f" + syn4[2:50], "", "", ""},
		{"an IPv4 header that is too short", "44" + syn4[2:], "", "", ""},
		{"IPv5", "55" + syn4[2:], "", "", ""},
		{"nothing", "", "", "", ""},
	} {
		b, err := hex.DecodeString(tc.packet)
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		err = p.parse(b)
		if tc.client == "" {
			if err == nil {
				t.Errorf("%s: taken, from %s to %s", tc.name, p.Client, p.Target)
			}
			continue
		}
		if err != nil || p.Client.String() != tc.client || p.Target.String() != tc.target || string(p.Payload) != tc.payload {
			t.Errorf("%s: %s to %s, payload %q, %v", tc.name, p.Client, p.Target, p.Payload, err)
		}
		if mss := map[bool]uint16{true: 1460}[strings.Contains(tc.packet, "020405b4")]; p.MSS != mss {
			t.Errorf("%s: segments of %d bytes", tc.name, p.MSS)
		}
		if tos := map[bool]byte{true: 0xb8}[strings.HasPrefix(tc.name, "expedited")]; p.TOS != tos {
			t.Errorf("%s: TOS 0x%x", tc.name, p.TOS)
		}
		// The SYN that is sent again does not include the padding of a bridge's short frame.
		if n := len(p.data); n != 40 && n != 56 && n != 60 && n != 32 {
			t.Errorf("%s: a packet of %d bytes", tc.name, n)
		}
		for n := range p.data {
			if new(Packet).parse(b[:n]) == nil {
				t.Errorf("%s: the first %d bytes of %d are taken", tc.name, n, len(p.data))
			}
		}
	}
}

// attributes returns a message of the queue without its header.
func attributes(t testing.TB, id uint32, payload []byte) []byte {
	t.Helper()
	be := binary.BigEndian
	b, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: attrHeader, Data: append(be.AppendUint32(nil, id), 8, 0, 4)},
		{Type: attrMark, Data: be.AppendUint32(nil, 0x30000)},
		{Type: attrOut, Data: be.AppendUint32(nil, 7)},
		{Type: attrHardware, Data: []byte{0, 6, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0}},
		{Type: attrPayload, Data: payload},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadPacket(t *testing.T) {
	payload, _ := hex.DecodeString(syn4)
	p, ok := readPacket(attributes(t, 42, payload))
	if !ok || p.id != 42 || p.Mark != 0x30000 || p.Out != 7 || p.UDP || p.Target.Port() != 80 || p.MAC != [6]byte{2, 5: 9} {
		t.Errorf("read %+v, %v", p, ok)
	}
	// A packet that cannot be taken still needs a verdict.
	if p, ok := readPacket(attributes(t, 43, payload[:30])); ok || p == nil || p.id != 43 {
		t.Errorf("half a packet: %+v, %v", p, ok)
	}
	if p, _ := readPacket(nil); p != nil {
		t.Errorf("nothing: %+v", p)
	}
}

func FuzzReadPacket(f *testing.F) {
	for _, packet := range []string{syn4, syn6, udp4} {
		b, _ := hex.DecodeString(packet)
		f.Add(attributes(f, 1, b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := readPacket(b)
		if !ok {
			return
		}
		if !p.Client.IsValid() || !p.Target.IsValid() || p.Client.Addr().Is4() != p.Target.Addr().Is4() || p.Client.Addr().Is4In6() && p.data[0]>>4 == 4 {
			t.Errorf("from %s to %s", p.Client, p.Target)
		}
		if len(p.Payload) > len(p.data) || !p.UDP && p.Payload != nil {
			t.Errorf("payload of %d bytes in a packet of %d", len(p.Payload), len(p.data))
		}
	})
}

// TestReadBridged checks the port and tag with which a bridge is about to send a packet.
func TestReadBridged(t *testing.T) {
	payload, _ := hex.DecodeString(syn4)
	be := binary.BigEndian
	tag, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: 1, Data: be.AppendUint16(nil, unix.ETH_P_8021Q)}, {Type: attrTCI, Data: be.AppendUint16(nil, 0x3007)}})
	if err != nil {
		t.Fatal(err)
	}
	more, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: attrPhysOut, Data: be.AppendUint32(nil, 9)}, {Type: attrVLAN | unix.NLA_F_NESTED, Data: tag},
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bridge
	b.set([]*BridgePort{{Name: "bat0", Index: 9, DeviceIndex: 3}, {Name: "bat0", Index: 9, DeviceIndex: 4, VLAN: 7}})
	for _, tc := range []struct {
		attributes []byte
		bridge     int // 0: unknown
	}{
		{append(attributes(t, 42, payload), more...), 4},
		{append(attributes(t, 42, payload), more[:8]...), 3},
		{attributes(t, 42, payload), 0},
	} {
		p, ok := readPacket(tc.attributes)
		if !ok {
			t.Fatal("not read")
		}
		if found := b.find(p); found != (tc.bridge != 0) || p.Bridge != tc.bridge || found && p.Out != 0 {
			t.Errorf("%v, by device %d, on bridge %d, not %d", found, p.Out, p.Bridge, tc.bridge)
		}
	}
}

func TestRules(t *testing.T) {
	r := Rules{
		Mode: Redirect, Port: 12443, TCP: true,
		Node:    []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::1")},
		Clients: []string{"br-lan", "mesh"}, Uplinks: []string{"mesh", "wan"},
		Exclude: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		NotTCP:  []Ports{{25, 25}}, UDP: []Ports{{53, 53}, {5000, 5100}}, Flows: []string{"br-lan", "mesh"},
	}
	has := func(want string, n int) {
		t.Helper()
		if got := strings.Count(r.String(), want); got != n {
			t.Errorf("%d times, not %d, %q in:\n%s", got, n, want, r.String())
		}
	}
	has("flags owner", 1)
	has("queue flags bypass to 25201", 4) // TCP over two IP versions, UDP in two ranges
	has(`iifname "mesh" oifname "mesh" return`, 1)
	has("dnat ip to 10.0.0.1:12443", 1)
	has("dnat ip6 to [fd00::1]:12443", 1)
	has("10.0.0.9", 0)
	has("udp dport 5000-5100", 1)
	has("tcp dport 25 return", 1)
	has("ip daddr 192.0.2.0/24 return", 1)
	has("ip rule add", 1)
	has("notrack", 3)
	has("ct status & (expected | confirmed | dnat | 0x2000) != 0 return", 1)
	has(`iifname "br-lan" goto uplink`, 1)
	has(`oifname "wan" goto leaving`, 1)
	has("socket mark 0x62000073 meta mark set", 2)

	// Without an address of the node in an IP version, its TCP cannot be delivered.
	r.Node = r.Node[:1]
	has("queue flags bypass", 3)
	r.Mode, r.UDP, r.Flows = TProxy, nil, nil
	has("queue flags bypass", 2)
	has("dnat ip", 0)
	has("tproxy to :12443", 1)
	has("socket transparent 1 meta mark set", 1)
	has("ip rule add", 2)
	r.Clients = nil
	has("iifname", 1) // for SYNs that were sent again
	r.TCP = false
	has("queue", 0)
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]Ports{"53": {53, 53}, "1-65535": {1, 65535}, "80-80": {80, 80}} {
		if p, err := ParsePorts(text); err != nil || p != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "0", "0-5", "6-5", "65536", "a", "1-", "-1", "1-2-3", " 1"} {
		if p, err := ParsePorts(text); err == nil {
			t.Errorf("%q: %v, not an error", text, p)
		}
	}
}
