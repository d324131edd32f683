// SPDX-License-Identifier: Apache-2.0

package uci

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxSize is the limit on a file, in bytes. OpenWrt's largest files have tens of kilobytes.
const maxSize = 1 << 20

// A File is the content of one UCI file.
type File struct {
	Name     string // as shown in errors
	Sections []*Section
}

// A Section is a section that a `config` line opens.
type Section struct {
	Type string
	Name string // "" for an anonymous section
	// Index counts the sections of the same type from 0, as in @type[0].
	Index   int
	Line    int
	Options []*Option
	// Again are the lines that open the section again. libuci adds their options to it.
	Again []int
}

// An Option is an option that `option` or `list` lines set.
type Option struct {
	Name   string
	List   bool
	Line   int // of its first value
	Values []Value
	// Again are the lines that replace an earlier value in libuci (`option` after
	// `option` or `list`), or turn an option into a list.
	Again []int
}

// A Value is one string and the line on which it begins.
type Value struct {
	Text string
	Line int
}

// String names the section as the uci command does: its name or @type[index].
func (s *Section) String() string {
	if s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("@%s[%d]", s.Type, s.Index)
}

// Option returns the option with that name, or nil.
func (s *Section) Option(name string) *Option {
	for _, o := range s.Options {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// Text returns the wanted sections as text. Parse reads the same sections from it. They are in the same lines as in
// the file, unless an option follows one of a later line, for example between the values of a list.
func (f *File) Text(wanted func(*Section) bool) []byte {
	var b bytes.Buffer
	line := 1
	write := func(at int, format string, args ...any) {
		text := strings.Repeat("\n", max(at-line, 0)) + fmt.Sprintf(format, args...) + "\n"
		b.WriteString(text)
		line += strings.Count(text, "\n")
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	for _, s := range f.Sections {
		if !wanted(s) {
			continue
		}
		name := ""
		if s.Name != "" {
			name = " " + quoted(s.Name)
		}
		write(s.Line, "config %s%s", quoted(s.Type), name)
		for _, o := range s.Options {
			word := "option"
			if o.List {
				word = "list"
			}
			for _, v := range o.Values {
				write(v.Line, "\t%s %s %s", word, quoted(o.Name), quoted(v.Text))
			}
		}
	}
	return b.Bytes()
}

// A SyntaxError is a mistake for which libuci, too, rejects the whole file, unless it is empty.
type SyntaxError struct {
	File string
	Line int
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }

// ReadFile reads the file at path. One without a byte is an error: libuci replaces a file by that, and says nothing, where it has no
// room to write. It ends one without a section with a line break.
func ReadFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, &SyntaxError{File: path, Line: 1, Text: "the file is empty: uci leaves it so if the flash is full"}
	}
	// It may also have written a part. A line without an end, as editors may leave it, is then only certain to be cut off without a value.
	last := data[bytes.LastIndexByte(data, '\n')+1:]
	if words := bytes.Fields(last); len(words) == 2 && (string(words[0]) == "option" || string(words[0]) == "list") {
		return nil, &SyntaxError{File: path, Line: 1 + bytes.Count(data, []byte{'\n'}), Text: "the file is cut off: uci leaves it so if the flash is full"}
	}
	return Parse(path, data)
}

// Parse parses the content of a file. The error is a *SyntaxError.
func Parse(name string, data []byte) (*File, error) {
	p := &parser{file: &File{Name: name}, scanner: scanner{rest: data}}
	err := p.parse(data)
	if err != nil {
		err.File = name
		return nil, err
	}
	return p.file, nil
}

type parser struct {
	scanner
	file    *File
	section *Section
}

func (p *parser) parse(data []byte) *SyntaxError {
	if len(data) > maxSize {
		return &SyntaxError{Line: 1, Text: fmt.Sprintf("file is larger than %d bytes", maxSize)}
	}
	if n := bytes.IndexByte(data, 0); n >= 0 { // libuci would lose text around it
		return &SyntaxError{Line: 1 + bytes.Count(data[:n], []byte{'\n'}), Text: "file contains a NUL byte"}
	}
	for p.nextLine() {
		for {
			command, more := p.command()
			if command == "" {
				break
			}
			if err := p.do(command, more); err != nil {
				return err
			}
		}
	}
	return nil
}

// do executes one command. more is false if nothing follows it on the line.
func (p *parser) do(command string, more bool) *SyntaxError {
	line := p.line
	fail := func(format string, args ...any) *SyntaxError {
		return &SyntaxError{Line: line, Text: fmt.Sprintf(format, args...)}
	}
	switch command {
	case "package", "p", "config", "c", "option", "o", "list", "l":
	default:
		return fail("unknown keyword %s: expected config, option or list", quote(command))
	}
	list := command[0] == 'l'
	if command[0] == 'o' || list {
		if p.section == nil {
			return fail("%s before the first section", quote(command))
		}
	}
	if !more {
		return fail("%s without arguments", quote(command))
	}
	first, err := p.word()
	if err != nil {
		return err
	}
	if first == "" {
		return fail("%s without arguments", quote(command))
	}
	var second string
	secondLine := p.line
	switch command[0] {
	case 'p':
		if !validName(first, "-") {
			return fail("invalid character in package name %s", quote(first))
		}
	case 'c':
		if !validType(first) {
			return fail("invalid character in section type %s", quote(first))
		}
		if second, err = p.word(); err != nil {
			return err
		}
		if second != "" && !validName(second, "") {
			return fail("invalid character in section name %s: letters, digits and _ are allowed", quote(second))
		}
	default:
		if !validName(first, "") {
			return fail("invalid character in option name %s: letters, digits and _ are allowed", quote(first))
		}
		p.skipSpace()
		secondLine = p.line
		if second, err = p.word(); err != nil {
			return err
		}
	}
	extra, err := p.word()
	if err != nil {
		return err
	}
	switch {
	case extra == "":
	case command[0] == 'o' || list:
		// It may be a token, and the log has none.
		return fail("unexpected text after the value: put a value with blanks in quotes, and each value of a list in a line of its own")
	default:
		return fail("unexpected %s at the end of the line", quote(extra))
	}

	switch command[0] {
	case 'c':
		return p.open(first, second, line)
	case 'o', 'l':
		p.set(first, Value{second, secondLine}, list)
	}
	return nil // a package line has no effect in a file that has the package's name
}

func (p *parser) open(typ, name string, line int) *SyntaxError {
	index := 0
	for _, s := range p.file.Sections {
		if name != "" && s.Name == name {
			if s.Type != typ {
				return &SyntaxError{Line: line, Text: fmt.Sprintf("section %s has type %s here and %s in line %d", quote(name), quote(typ), quote(s.Type), s.Line)}
			}
			s.Again = append(s.Again, line)
			p.section = s
			return nil
		}
		if s.Type == typ {
			index++
		}
	}
	p.section = &Section{Type: typ, Name: name, Index: index, Line: line}
	p.file.Sections = append(p.file.Sections, p.section)
	return nil
}

func (p *parser) set(name string, v Value, list bool) {
	if !list && v.Text == "" {
		return // in libuci, this neither sets nor unsets anything
	}
	o := p.section.Option(name)
	if o == nil {
		o = &Option{Name: name, List: list, Line: v.Line, Values: []Value{v}}
		p.section.Options = append(p.section.Options, o)
		return
	}
	if list && o.List {
		o.Values = append(o.Values, v)
		return
	}
	same := !list && !o.List && o.Values[0].Text == v.Text
	o.Again = append(o.Again, v.Line)
	if list {
		o.Values = append(o.Values, v)
	} else {
		o.Values = []Value{v}
	}
	o.List = list
	if !same { // libuci replaces the option with a new one at the end
		i := slices.Index(p.section.Options, o)
		p.section.Options = append(slices.Delete(p.section.Options, i, i+1), o)
	}
}

func validName(s, extra string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' && !strings.Contains(extra, string(c)) {
			return false
		}
	}
	return true
}

func validType(s string) bool {
	for i := range len(s) {
		if s[i] < 33 || s[i] > 126 {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// quote returns text from a file in a form for an error: truncated, on one line.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "..."
	}
	q := fmt.Sprintf("%q", s)
	return "'" + q[1:len(q)-1] + "'"
}
