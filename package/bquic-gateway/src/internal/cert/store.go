// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Pair names the files of a certificate.
type Pair struct {
	Name      string // what the configuration calls the pair, for errors
	Cert, Key string
	// Hosts are the server names (SNI) that the certificate is for.
	Hosts []string
}

// A Store provides a TLS server's certificates, and reloads them when their
// files change.
type Store struct {
	mu      sync.Mutex // protects the certificates of entries
	entries []*entry   // the first is the default
}

type entry struct {
	Pair
	cert  *tls.Certificate
	files [2]state // state when last read
	wrong string   // why they could not be used then; only Refresh uses it
}

// state identifies a version of a file, whatever program wrote it.
type state struct {
	size    int64
	changed time.Time
	inode   uint64
}

// NewStore reads all pairs. The first is the default, for hosts that no other
// pair names.
func NewStore(pairs ...Pair) (*Store, error) {
	s := &Store{}
	for _, p := range pairs {
		e := &entry{Pair: p}
		if err := e.load(); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		s.entries = append(s.entries, e)
	}
	return s, nil
}

// Default returns the certificate for hosts without one of their own.
func (s *Store) Default() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[0].cert
}

// Get implements tls.Config.GetCertificate.
func (s *Store) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	for _, e := range s.entries[1:] {
		if slices.Contains(e.Hosts, name) {
			return e.cert, nil
		}
	}
	return s.entries[0].cert, nil
}

// Refresh reloads the pairs whose files have changed. If a pair is not usable,
// for example because it is only half written, Refresh logs that and keeps the
// old one. It tries again each time, because what was wrong, such as a mode, may not be
// seen in the files' state.
func (s *Store) Refresh(log *slog.Logger) {
	for _, e := range s.entries {
		if e.wrong == "" && e.look() == e.files {
			continue
		}
		renewed := &entry{Pair: e.Pair}
		if err := renewed.load(); err != nil {
			if err.Error() != e.wrong || renewed.files != e.files {
				log.Warn("cannot load the renewed certificate: the old one stays in use", "error", err)
			}
			e.files, e.wrong = renewed.files, err.Error() // only Refresh and NewStore use the files' state
			continue
		}
		e.wrong = ""
		s.mu.Lock()
		e.cert, e.files = renewed.cert, renewed.files
		s.mu.Unlock()
		log.Info("certificate renewed", "file", e.Cert, "pin", PinOf(renewed.cert.Leaf), "until", renewed.cert.Leaf.NotAfter.Format(time.DateOnly))
	}
}

// load records the files' state before it reads them, so that a write during
// the read is noticed the next time.
func (e *entry) load() error {
	e.files = e.look()
	c, err := load(e.Cert, e.Key)
	if err != nil {
		return err
	}
	e.cert = &c
	return nil
}

func (e *entry) look() (files [2]state) {
	for i, name := range []string{e.Cert, e.Key} {
		if info, err := os.Stat(name); err == nil {
			files[i] = state{info.Size(), info.ModTime(), info.Sys().(*syscall.Stat_t).Ino}
		}
	}
	return files
}
