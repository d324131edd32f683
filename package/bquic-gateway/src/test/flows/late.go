// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/tunnel"
)

// late is a connection whose data is delayed.
type late struct {
	*net.TCPConn
	pieces <-chan piece
	now    piece
	end    error
}

type piece struct {
	data []byte
	due  time.Time
}

const (
	pieceBytes = 16 << 10
	mostPieces = 1024
)

// newLate returns the connection as it appears from afar. If idle is not 0, the server closes it after that time without data.
func newLate(conn *net.TCPConn, delay, idle time.Duration) *late {
	pieces := make(chan piece, mostPieces)
	l := &late{TCPConn: conn, pieces: pieces, end: io.EOF}
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, pieceBytes)
			if idle != 0 {
				_ = conn.SetReadDeadline(time.Now().Add(idle))
			}
			n, err := conn.Read(b)
			if n > 0 {
				pieces <- piece{b[:n], time.Now().Add(delay)}
			}
			if err != nil {
				if err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) {
					l.end = err // before the channel is closed
				}
				return
			}
		}
	}()
	return l
}

func (l *late) Read(b []byte) (int, error) {
	if len(l.now.data) == 0 {
		p, ok := <-l.pieces
		if !ok {
			return 0, l.end
		}
		time.Sleep(time.Until(p.due))
		l.now = p
	}
	n := copy(b, l.now.data)
	l.now.data = l.now.data[n:]
	return n, nil
}

func (l *late) Close() error                     { return l.CloseWrite() }
func (l *late) CancelRead(quic.StreamErrorCode)  { tunnel.Reset(l.TCPConn) }
func (l *late) CancelWrite(quic.StreamErrorCode) { tunnel.Reset(l.TCPConn) }
