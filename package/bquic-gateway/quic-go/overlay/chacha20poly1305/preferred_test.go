// SPDX-License-Identifier: Apache-2.0

//go:build arm || mips || mipsle

package chacha20poly1305

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPreferred shows that a client and a server on a processor without AES
// instructions agree on ChaCha20. A server with AES instructions follows such a
// client's preference (crypto/tls, isAESGCMPreferred); one without them does not
// consider the client's.
func TestPreferred(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(nil, template, template, public, private)
	require.NoError(t, err)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	server := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}}})
	failed := make(chan error, 1)
	go func() { failed <- server.Handshake() }()
	client := tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, client.Handshake())
	require.Equal(t, tls.TLS_CHACHA20_POLY1305_SHA256, client.ConnectionState().CipherSuite)
	go func() { _, _ = client.Read(make([]byte, 1)) }() // a session ticket
	require.NoError(t, <-failed)
}
