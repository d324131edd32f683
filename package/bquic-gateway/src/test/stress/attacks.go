// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	siteHost   = "files.test"  // serves bigFile
	originHost = "origin.test" // is a reverse proxy for the harness
	bigFile    = "/big"
)

var (
	target   = netip.MustParseAddrPort("127.0.0.1:8443")
	attacker = net.IPv4(127, 1, 0, 1)
	// The good client, and one that is neither it nor the attacker.
	goodAddress  = net.IPv4(127, 0, 0, 1)
	otherAddress = net.IPv4(127, 0, 0, 2)
)

// An attack does its worst until ctx ends, and returns how much it did. An error means that
// the victim did not answer as required.
type attack struct {
	name string
	doc  string
	unit string
	do   func(context.Context) (int, error)
	time time.Duration // 0: the default
	// victim: the attack uses the good client's address. The client must then keep more of its
	// throughput, and it and another client must never fail to connect anew.
	victim bool
}

// long is for attacks that occupy places until handshakes time out. At 45 per second, which
// is below the rate that triggers a Retry, it takes longer to exhaust anything.
const long = 10 * time.Second

// few is for attacks that have their full effect at once.
const few = 2 * time.Second

func many(n int, do func(context.Context) error) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return crowd(ctx, n, do) }
}

func manyQUIC(n int, do func(context.Context, *quic.Conn) error) func(context.Context) (int, error) {
	return many(n, onQUIC(nil, do))
}

func garbageAttack(rate int, next func() []byte) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return datagrams(ctx, rate, false, next) }
}

func initials(manyAddresses bool) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		f, err := newForger()
		if err != nil {
			return 0, err
		}
		return datagrams(ctx, 20_000, manyAddresses, f.packet)
	}
}

// forged sends Initials with the good client's address, from all of its ports.
func forged(rate int) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		f, err := newForger()
		if err != nil {
			return 0, err
		}
		return forgedDatagrams(ctx, rate, goodAddress, f.packet)
	}
}

var attacks = []attack{
	{name: "garbage", doc: "random bytes", unit: "datagrams", do: garbageAttack(50_000, randomDatagram)},
	{name: "garbage-long", doc: "packets that look like a handshake's", unit: "datagrams", do: garbageAttack(50_000, longHeader)},
	{name: "garbage-short", doc: "packets that look like a connection's", unit: "datagrams", do: garbageAttack(50_000, shortHeader)},
	{name: "initials-one", doc: "handshakes never finished, from one address", unit: "handshakes", do: initials(false)},
	{name: "initials-many", doc: "the same from many forged addresses", unit: "handshakes", do: initials(true)},
	{name: "initials-victim-45", doc: "45 a second forged in the good client's name", unit: "handshakes", do: forged(45), time: 2 * long, victim: true},
	{name: "initials-victim-500", doc: "500 a second forged in the good client's name", unit: "handshakes", do: forged(500), time: long, victim: true},
	{name: "initials-victim-5000", doc: "5,000 a second forged in the good client's name", unit: "handshakes", do: forged(5000), time: long, victim: true},
	{name: "handshakes", doc: "handshakes finished, connections closed at once", unit: "connections", do: many(8, handshakeQUIC)},
	{name: "abandoned", doc: "connections never heard of again", unit: "connections", do: many(8, abandon)},
	{name: "silent-tcp", doc: "1,000 TCP connections without a byte", unit: "connections", do: many(1000, silentTCP), time: few},
	{name: "handshakes-tcp", doc: "TLS handshakes over TCP", unit: "connections", do: many(8, handshakeTCP)},
	{name: "slow-header-tcp", doc: "500 requests whose header dribbles in", unit: "connections", do: many(500, slowHeaderTCP)},
	{name: "slow-body-tcp", doc: "500 uploads of a byte at a time", unit: "connections", do: many(500, slowBodyTCP)},
	{name: "slow-header-quic", doc: "50 x 100 streams whose HEADERS dribble in", unit: "connections", do: manyQUIC(50, slowHeaderQUIC)},
	{name: "slow-body-quic", doc: "20 x 100 uploads of a byte at a time", unit: "connections", do: manyQUIC(20, slowBodyQUIC)},
	{name: "unread-uploads", doc: "20 x 100 uploads to an origin that does not read", unit: "connections", do: manyQUIC(20, uploadsUntilEnd)},
	{name: "header-bomb-tcp", doc: "HTTP/1.1 headers without end", unit: "connections", do: many(8, headerBombTCP), time: few},
	{name: "continuation", doc: "HTTP/2 CONTINUATION without end", unit: "connections", do: many(8, continuationFlood), time: few},
	{name: "huge-header", doc: "HTTP/3 HEADERS of a terabyte", unit: "connections", do: manyQUIC(8, hugeHeader), time: few},
	{name: "large-headers", doc: "8 x 100 HTTP/3 HEADERS of 1 MB that do not end", unit: "connections", do: manyQUIC(8, largeHeaders)},
	{name: "qpack-bomb", doc: "bytes that stand for whole header fields", unit: "connections", do: manyQUIC(2, qpackBomb)},
	{name: "qpack-instructions", doc: "inserts into a table never allowed", unit: "connections", do: manyQUIC(8, qpackInstructions), time: few},
	{name: "rapid-reset", doc: "HTTP/3 streams opened and reset", unit: "streams", do: rapidReset},
	{name: "rapid-reset-h2", doc: "HTTP/2 streams opened and reset", unit: "streams", do: rapidResetHTTP2, time: few},
	{name: "tiny-window", doc: "20 x 100 downloads with windows of 16 bytes", unit: "connections", do: many(20, onQUIC(tinyWindows, readNothing))},
	{name: "tiny-window-tcp", doc: "300 downloads that nobody reads", unit: "connections", do: many(300, zeroWindowTCP)},
	{name: "tiny-window-h2", doc: "20 x 250 HTTP/2 downloads with a window of a byte", unit: "connections", do: many(20, tinyWindowHTTP2)},
	{name: "ack-frequency", doc: "ACK_FREQUENCY", unit: "frames", do: flood(fill, ackFrequency())},
	{name: "immediate-ack", doc: "IMMEDIATE_ACK", unit: "frames", do: flood(fill, immediateAck), time: few},
	{name: "unsent-acks", doc: "ACKs for packets not sent yet", unit: "closed", do: unsentAcks},
	{name: "skipped-acks", doc: "ACKs for packet numbers that were skipped", unit: "closed", do: skippedAcks},
	{name: "ping", doc: "PING", unit: "frames", do: flood(fill, ping), time: few},
	{name: "path-challenge", doc: "PATH_CHALLENGE", unit: "frames", do: flood(fill, pathChallenge), time: few},
	{name: "new-cids", doc: "NEW_CONNECTION_ID that retires all others", unit: "connections", do: manyQUIC(2, newConnectionIDs), time: few},
	{name: "retire-cids", doc: "RETIRE_CONNECTION_ID", unit: "connections", do: manyQUIC(2, retireConnectionIDs), time: few},
	{name: "data-blocked", doc: "DATA_BLOCKED", unit: "frames", do: flood(fill, dataBlocked()), time: few},
	{name: "crypto-data", doc: "CRYPTO after the handshake", unit: "frames", do: flood(1, cryptoData()), time: few},
	{name: "stream-gaps", doc: "every other byte of 100 streams", unit: "connections", do: manyQUIC(4, streamGaps), time: few},
	{name: "wrong-token", doc: "CONNECT with a wrong token", unit: "requests", do: wrongToken, time: few},
}
