// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"time"
)

// TestLook checks that only a relay that takes connections, but has seen none of its busy
// clients, reports it, or one whose devices do not exist.
func TestLook(t *testing.T) {
	now := time.Unix(1000, 0)
	why := func() Unseen { return Unseen{UnseenOff, "off"} }
	var u unseen
	moved := uint64(0)
	look := func(after time.Duration, taking, blind bool, seen, bytes uint64) {
		now, moved = now.Add(after), moved+bytes
		u.look(now, taking, blind, seen, func() uint64 { return moved }, why)
	}
	for _, tc := range []struct {
		name   string
		after  time.Duration
		taking bool
		blind  bool
		seen   uint64
		bytes  uint64
		says   bool
	}{
		{"nothing is taken", time.Hour, false, false, 0, 1 << 30, false},
		{"it begins", 0, true, false, 0, 0, false},
		{"idle clients", unseenTime, true, false, 0, unseenBytes - 1, false},
		{"and idle again", unseenTime, true, false, 0, unseenBytes - 1, false},
		{"not for long enough", unseenTime / 2, true, false, 0, unseenBytes, false},
		{"busy clients", unseenTime / 2, true, false, 0, 1, true},
		{"it says so until a connection comes", unseenTime, true, false, 0, 1, true},
		{"a connection", time.Second, true, false, 1, 1, false},
		{"busy ever after", time.Hour, true, false, 1, 1 << 30, false},
		{"the gateway is away", time.Second, false, false, 0, 0, false},
		{"it is back", time.Second, true, false, 0, 0, false},
		{"busy, but not for long", unseenTime / 2, true, false, 0, 1 << 30, false},
		{"the gateway is away again", time.Second, false, false, 0, 0, false},
		{"the device has gone", 0, true, true, 0, 0, false},
		{"for long", unseenTime, true, true, 0, 0, true},
		{"on a slow processor, too", unseenTime, false, true, 0, 0, true},
		{"it is there", 0, true, false, 0, 0, true},
		{"and its clients are idle", unseenTime, true, false, 0, 0, false},
		{"a connection again", time.Second, true, false, 2, 1, false},
		{"its configuration names another device", 0, true, true, 2, 0, false},
		{"which does not exist", unseenTime, true, true, 2, 0, true},
		{"its configuration is right again", time.Second, true, false, 2, 0, false},
	} {
		if look(tc.after, tc.taking, tc.blind, tc.seen, tc.bytes); (u.now != nil) != tc.says {
			t.Errorf("%s: says %v", tc.name, u.now)
		}
	}
}
