// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableApart opens the table in a network namespace of the test.
func tableApart(t *testing.T) *table {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	table, err := openTable()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestTransactionAfterFailed checks that the kernel's answers to a failed
// transaction are not taken as answers to the next one, however long the process
// waits for the processor in between.
func TestTransactionAfterFailed(t *testing.T) {
	table := tableApart(t)
	defer table.close()
	var end atomic.Bool
	defer end.Store(true)
	for range 8 * runtime.GOMAXPROCS(0) {
		go func() {
			for !end.Load() {
			}
		}()
	}
	chain := func(table string) (t transaction) {
		for range 20 {
			t.add(unix.NFPROTO_INET, unix.NFT_MSG_NEWCHAIN, netlink.Create, text(unix.NFTA_CHAIN_TABLE, table), text(unix.NFTA_CHAIN_NAME, "c"))
		}
		return t
	}
	for i := range 10 {
		failing, good := chain("no-such-table"), chain(tableName)
		if err := failing.commit(table.conn); !errors.Is(err, unix.ENOENT) {
			t.Fatalf("try %d: a chain in a table that is not there: %v", i, err)
		}
		if err := good.commit(table.conn); err != nil {
			t.Fatalf("try %d: %v", i, err)
		}
	}
}

// TestManyRules excludes many prefixes, such as those of a country. The kernel has room for the answers to a few hundred
// messages, and by default takes no transaction of 200 KB.
func TestManyRules(t *testing.T) {
	table := tableApart(t)
	defer table.close()
	for _, excluded := range []int{100, 300, 1000, 4000} {
		r := Rules{Mode: Redirect}
		for i := range excluded {
			r.Exclude = append(r.Exclude, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0}), 24))
		}
		if err := table.apply(&r); err != nil {
			t.Errorf("%d excluded prefixes: %v", excluded, err)
		}
	}
}
