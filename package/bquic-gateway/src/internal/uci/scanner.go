// SPDX-License-Identifier: Apache-2.0

package uci

import "bytes"

// A scanner splits a file into lines and lines into words. A quoted string or
// a backslash can join further lines to the current one.
type scanner struct {
	rest []byte // not read yet
	buf  []byte // the current line
	pos  int    // position in buf
	line int    // number of the last line read, from 1
}

// nextLine replaces the current line. It returns false at the end of the file.
func (s *scanner) nextLine() bool {
	s.pos = 0
	return s.join()
}

// join appends the next line to the part of the current line that has been read.
func (s *scanner) join() bool {
	s.buf = s.buf[:s.pos]
	if len(s.rest) == 0 {
		return false
	}
	n := bytes.IndexByte(s.rest, '\n') + 1
	if n == 0 {
		n = len(s.rest)
	}
	s.buf = append(s.buf, s.rest[:n]...)
	s.rest = s.rest[n:]
	s.line++
	return true
}

// cur returns the current character, 0 at the end of the line.
func (s *scanner) cur() byte {
	if s.pos < len(s.buf) {
		return s.buf[s.pos]
	}
	return 0
}

func (s *scanner) skipSpace() {
	for isSpace(s.cur()) {
		s.pos++
	}
}

// command returns the first word of a command, "" at the end of the line, and
// whether anything follows it.
func (s *scanner) command() (_ string, more bool) {
	if s.pos == 0 {
		s.skipSpace()
	}
	for s.cur() == ' ' || s.cur() == '\t' {
		s.pos++
	}
	word := s.buf[s.pos:]
	if n := bytes.IndexAny(word, " \t"); n >= 0 {
		word, more = word[:n], true
	}
	if len(word) > 0 && word[0] == '#' {
		return "", false
	}
	s.pos += len(word)
	if more {
		s.pos++
	}
	return string(word), more
}

// word returns the next argument without its quotes, "" if there is none.
func (s *scanner) word() (string, *SyntaxError) {
	s.skipSpace()
	start := s.pos
	var word []byte
	for first := true; first || s.cur() != 0 && !isSpace(s.cur()); first = false {
		switch c := s.cur(); c {
		case '\'', '"':
			var err *SyntaxError
			if word, err = s.quoted(word, c); err != nil {
				return "", err
			}
		case '#':
			s.buf = s.buf[:s.pos]
			return string(word), nil
		case 0:
			return string(word), nil
		case ';':
			switch s.pos - start {
			case 0:
				s.pos++ // counts as an empty argument
			case len(word):
				// libuci terminates an argument in place. In an argument without quotes or
				// escapes, that overwrites the semicolon, and the rest of the line is lost.
				s.buf = s.buf[:s.pos]
			}
			return string(word), nil
		case '\\':
			if !s.backslash() {
				continue
			}
			word = append(word, s.cur())
			s.pos++
		default:
			word = append(word, c)
			s.pos++
		}
	}
	if s.cur() != 0 {
		s.pos++
	}
	return string(word), nil
}

// quoted appends a quoted string to word. A backslash escapes in double quotes only.
func (s *scanner) quoted(word []byte, quote byte) ([]byte, *SyntaxError) {
	line := s.line
	s.pos++
	for {
		c := s.cur()
		switch {
		case c == quote:
			s.pos++
			return word, nil
		case c == 0:
			if !s.join() {
				return nil, &SyntaxError{Line: line, Text: "quote " + string(quote) + " is never closed"}
			}
			continue
		case c == '\\' && quote == '"':
			if !s.backslash() {
				continue
			}
		}
		word = append(word, s.cur())
		s.pos++
	}
}

// backslash skips a backslash and reports whether it escapes a character. At the end
// of a line, it joins the next line instead.
func (s *scanner) backslash() bool {
	s.pos++
	if tail := s.buf[s.pos:]; len(tail) == 0 || tail[0] == '\n' || string(tail) == "\r\n" {
		s.join()
		return false
	}
	return true
}

// isSpace is C's isspace in the C locale.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
