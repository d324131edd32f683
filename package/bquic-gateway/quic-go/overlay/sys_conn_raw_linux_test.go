// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/quic-go/quic-go/internal/protocol"

	"github.com/stretchr/testify/require"
)

func listenRaw(t *testing.T, network, addr string) *net.UDPConn {
	t.Helper()
	a, err := net.ResolveUDPAddr(network, addr)
	require.NoError(t, err)
	c, err := net.ListenUDP(network, a)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("no IPv6 here")
	}
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

// A messageReader reads all that a MessageWriter has written, in order and from the
// same addresses, as package net does.
func TestRawMessages(t *testing.T) {
	for _, c := range []struct{ network, listen, dial, from string }{
		{"udp4", "127.0.0.1:0", "127.0.0.1", "127.0.0.1:0"},
		{"udp6", "[::1]:0", "::1", "[::1]:0"},
		{"udp", "[::]:0", "127.0.0.1", "[::]:0"}, // mapped addresses
		{"udp", "[::]:0", "::1", "[::]:0"},
	} {
		t.Run(fmt.Sprint(c.network, " ", c.listen, " ", c.dial), func(t *testing.T) {
			to := listenRaw(t, c.network, c.listen)
			r, err := newBatchConn(to)
			require.NoError(t, err)
			ms := make([]ipv4.Message, batchSize)
			for i := range ms {
				ms[i].Buffers = [][]byte{make([]byte, 1500)}
				ms[i].OOB = make([]byte, oobBufferSize)
			}
			target := &net.UDPAddr{IP: net.ParseIP(c.dial), Port: to.LocalAddr().(*net.UDPAddr).Port}
			senders := make([]*net.UDPConn, 2)
			writers := make([]*MessageWriter, 2)
			for i := range senders {
				senders[i] = listenRaw(t, c.network, c.from)
				writers[i], err = NewMessageWriter(senders[i])
				require.NoError(t, err)
			}
			sent := 0
			for sender := range 2 {
				for range 20 {
					b := fmt.Appendf(nil, "%d of %d", sent, sender)
					n, _, err := writers[sender].WriteMsgUDP(b, nil, target)
					require.NoError(t, err)
					require.Equal(t, len(b), n)
					sent++
				}
			}
			seen := make(map[*net.UDPAddr]int)
			for got := 0; got < sent; {
				n, err := r.ReadBatch(ms, 0)
				require.NoError(t, err)
				require.NotZero(t, n)
				for _, m := range ms[:n] {
					require.Equal(t, fmt.Sprintf("%d of %d", got, got/20), string(m.Buffers[0][:m.N]))
					addr := m.Addr.(*net.UDPAddr)
					seen[addr]++
					require.Equal(t, senders[got/20].LocalAddr().(*net.UDPAddr).Port, addr.Port)
					require.True(t, addr.IP.Equal(target.IP), addr.String())
					require.Empty(t, addr.Zone)
					got++
				}
			}
			require.Len(t, seen, 2, "an address is made once per sender in turn")
		})
	}
}

// Receiving and sending a packet allocates nothing, and reads the clock once.
func TestRawConnAllocations(t *testing.T) {
	to, from := listenRaw(t, "udp4", "127.0.0.1:0"), listenRaw(t, "udp4", "127.0.0.1:0")
	in, err := newConn(to, false)
	require.NoError(t, err)
	out, err := newConn(from, false)
	require.NoError(t, err)
	b := make([]byte, 1200)
	target := to.LocalAddr()
	oob := make([]byte, 0, 64)
	var at, times = int64(0), 0
	allocs := testing.AllocsPerRun(200, func() {
		for range batchSize {
			_, err := out.WritePacket(b, target, oob, 0, protocol.ECT1)
			if err != nil {
				panic(err)
			}
		}
		for range batchSize {
			p, err := in.ReadPacket()
			if err != nil || len(p.data) != len(b) || p.ecn != protocol.ECT1 {
				panic(fmt.Sprint(p, err))
			}
			if int64(p.rcvTime) != at {
				at = int64(p.rcvTime)
				times++
			}
			p.buffer.Release()
		}
	})
	if poolsKeep() {
		require.Less(t, allocs, 1.0)
	}
	// A kernel that is busy with others' packets may not have delivered all of them, so some batches have two.
	require.Less(t, times, 201*batchSize/2, "packets of a batch have one time")
}

// poolsKeep is false with the race detector, which makes pools drop some items.
func poolsKeep() bool {
	var p sync.Pool
	kept := 0
	for range 100 {
		p.Put(new(int))
		if p.Get() != nil {
			kept++
		}
	}
	return kept > 95 // a garbage collection may intervene
}

func TestRawErrors(t *testing.T) {
	c := listenRaw(t, "udp4", "127.0.0.1:0")
	w, err := NewMessageWriter(c)
	require.NoError(t, err)
	var syscallError *os.SyscallError
	_, _, err = w.WriteMsgUDP(make([]byte, 1<<16), nil, c.LocalAddr().(*net.UDPAddr))
	require.True(t, isSendMsgSizeErr(err), err)
	require.ErrorAs(t, err, &syscallError)
	// It leaves addresses that it cannot handle to package net.
	_, _, err = w.WriteMsgUDP([]byte("x"), nil, &net.UDPAddr{IP: net.IPv6loopback, Port: 1})
	require.Error(t, err)

	r, err := newBatchConn(c)
	require.NoError(t, err)
	ms := []ipv4.Message{{Buffers: [][]byte{make([]byte, 100)}, OOB: make([]byte, 100)}}
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	_, err = r.ReadBatch(ms, 0)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	done := make(chan error)
	go func() {
		_, err := r.ReadBatch(ms, 0)
		done <- err
	}()
	c.Close()
	require.ErrorIs(t, <-done, net.ErrClosed)
	_, _, err = w.WriteMsgUDP([]byte("x"), nil, c.LocalAddr().(*net.UDPAddr))
	require.ErrorIs(t, err, net.ErrClosed)
}
