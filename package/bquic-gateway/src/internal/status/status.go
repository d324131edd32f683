// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	ioTimeout = 5 * time.Second
	// askTimeout is how long the server waits for the end of the question: on a busy router, a client may get no time
	// for a while. One that asks for nothing may never end it.
	askTimeout = 2 * time.Second
	maxWord    = 32
	// maxSize is the limit on an answer that Read accepts, in bytes.
	maxSize = 16 << 20
	// maxReaders is the limit on concurrent answers.
	maxReaders = 8
)

// A Server owns a status socket.
type Server struct {
	ln net.Listener
}

// Listen makes the socket, accessible to its owner only. It replaces a socket that a daemon left
// behind, but returns an error if another daemon answers on it.
func Listen(path string) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("status socket: %w", err)
	}
	// On Linux, the file inherits the socket's mode, so it never has another one.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if info, serr := os.Lstat(path); serr == nil && info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("status socket: %s exists and is not a socket", path)
		}
		if c, derr := net.DialTimeout("unix", path, ioTimeout); derr == nil {
			c.Close()
			return nil, fmt.Errorf("status socket: another daemon answers on %s", path)
		} else if !errors.Is(derr, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("status socket: %w", derr)
		}
		if err = os.Remove(path); err == nil {
			ln, err = lc.Listen(context.Background(), "unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("status socket: %w", err)
	}
	return &Server{ln}, nil
}

// Close removes the socket.
func (s *Server) Close() error { return s.ln.Close() }

// Answers are a daemon's answers, by name.
type Answers map[string]func() any

// Names of the answers that every daemon has.
const (
	Status  = ""        // the current status
	Summary = "summary" // the status with the sum over live connections (live) in place of their list, which is long
	History = "history"
)

// Run answers until ctx ends, then closes the socket. A client that asks for nothing, or for an
// unknown name, receives the status.
func (s *Server) Run(ctx context.Context, answers Answers) error {
	stop := context.AfterFunc(ctx, func() { s.ln.Close() })
	defer stop()
	slots := make(chan struct{}, maxReaders)
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("status socket: %w", err)
			}
			time.Sleep(100 * time.Millisecond) // out of file descriptors, which is temporary
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(askTimeout))
			_ = conn.SetWriteDeadline(time.Now().Add(ioTimeout))
			word, _ := io.ReadAll(io.LimitReader(conn, maxWord))
			answer, ok := answers[string(word)]
			if !ok {
				answer = answers[Status]
			}
			_ = json.NewEncoder(conn).Encode(answer()) // an error means only that the client is gone
		}()
	}
}

// Read returns the status of the daemon at path.
func Read(path string) (json.RawMessage, error) { return Ask(path, Status) }

// Ask returns the answer named what of the daemon at path.
func Ask(path, what string) (json.RawMessage, error) {
	conn, err := net.DialTimeout("unix", path, ioTimeout)
	if err != nil {
		switch {
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("no daemon answers on %s", path)
		case errors.Is(err, syscall.EACCES):
			return nil, fmt.Errorf("no permission to connect to %s", path)
		}
		return nil, err
	}
	defer conn.Close()
	return ask(conn.(*net.UnixConn), what)
}

func ask(conn *net.UnixConn, what string) (json.RawMessage, error) {
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	_, err := io.WriteString(conn, what)
	// After askTimeout, the status is there without a question.
	if err = errors.Join(err, conn.CloseWrite()); err != nil && what != Status {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(conn, maxSize))
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("the answer from %s is not JSON", conn.RemoteAddr())
	}
	return data, nil
}
