// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"bquic/internal/system"
)

// load reads a certificate chain and its key from PEM files.
func load(certFile, keyFile string) (tls.Certificate, error) {
	certPEM, err := readFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read certificate: %w", err)
	}
	keyPEM, err := readFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read key: %w", err)
	}
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s and key %s: %s", certFile, keyFile, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return c, nil
}

// Kept returns the file names of the self-signed certificate in dir.
func Kept(dir string) Pair {
	return Pair{Name: "self-signed certificate", Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// LoadOrCreate returns the self-signed certificate in dir, and makes it if there is
// none, with the key in dir, if there is one. names are its hosts. An existing certificate is not changed when they change,
// because relays know its pin.
func LoadOrCreate(dir string, names []string) (_ tls.Certificate, created bool, err error) {
	kept := Kept(dir)
	certFile, keyFile := kept.Cert, kept.Key
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	if !errors.Is(certErr, fs.ErrNotExist) && !errors.Is(keyErr, fs.ErrNotExist) {
		c, err := load(certFile, keyFile)
		return c, false, err
	}
	certPEM, keyPEM, err := selfSigned(names, keptKey(keyFile))
	if err != nil {
		return tls.Certificate{}, false, fmt.Errorf("cannot make a certificate: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return tls.Certificate{}, false, fmt.Errorf("cannot save the certificate: %w", err)
	}
	// The certificate is written last, so that a power cut never leaves one without its key.
	for _, f := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{{keyFile, keyPEM, 0o600}, {certFile, certPEM, 0o644}} {
		if err := system.Replace(f.name, f.data, f.mode, -1); err != nil {
			return tls.Certificate{}, false, fmt.Errorf("cannot save the certificate: %w", err)
		}
	}
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	return c, true, err
}

// keptKey returns the key that selfSigned has made, or nil.
func keptKey(name string) *ecdsa.PrivateKey {
	data, err := readFile(name)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	made, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	key, _ := made.(*ecdsa.PrivateKey)
	return key
}

func selfSigned(names []string, key *ecdsa.PrivateKey) (certPEM, keyPEM []byte, err error) {
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, nil, err
		}
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "bquic gateway"},
		// Routers have no valid time before they reach a time server, and the pin decides,
		// not the date. NotAfter means "no expiration" (RFC 5280, section 4.1.2.5).
		NotBefore:             time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		printable := strconv.QuoteToASCII(name) == `"`+name+`"` // a certificate may contain nothing else
		if addr, err := netip.ParseAddr(name); err == nil {
			t.IPAddresses = append(t.IPAddresses, addr.AsSlice())
		} else if name != "*" && !slices.Contains(t.DNSNames, name) && printable {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// A Pin is the SHA-256 of a public key's SubjectPublicKeyInfo, as in RFC 7469.
type Pin [sha256.Size]byte

const pinPrefix = "sha256/"

// PinOf returns the pin of a certificate.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

func (p Pin) String() string { return pinPrefix + base64.StdEncoding.EncodeToString(p[:]) }

// ParsePin parses the output of String.
func ParsePin(s string) (p Pin, err error) {
	b64, ok := strings.CutPrefix(s, pinPrefix)
	sum, err := base64.StdEncoding.Strict().DecodeString(b64)
	if !ok || err != nil || len(sum) != len(p) {
		return p, fmt.Errorf("%q is not sha256/ followed by 32 bytes in base64", s)
	}
	return Pin(sum), nil
}

// Verify makes conf accept certificates with these public keys only. It checks neither
// names nor authorities nor dates.
func Verify(conf *tls.Config, pins ...Pin) {
	conf.InsecureSkipVerify = true
	conf.VerifyConnection = func(cs tls.ConnectionState) error {
		if got := PinOf(cs.PeerCertificates[0]); !slices.Contains(pins, got) {
			return fmt.Errorf("wrong pin: the server's key is %s", got)
		}
		return nil
	}
}
