// SPDX-License-Identifier: Apache-2.0

package uci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestPositions(t *testing.T) {
	f, err := Parse("conf", []byte(`# a comment
config site 'one'
	list host a
	list host 'b
c'
	option root /x
config site
config site 'one'
	option root /y
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{Name: "conf", Sections: []*Section{
		{Type: "site", Name: "one", Line: 2, Again: []int{8}, Options: []*Option{
			{Name: "host", List: true, Line: 3, Values: []Value{{"a", 3}, {"b\nc", 4}}},
			{Name: "root", Line: 6, Values: []Value{{"/y", 9}}, Again: []int{9}},
		}},
		{Type: "site", Index: 1, Line: 7},
	}}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got %s\nwant %s", show(f), show(want))
	}
	if got := f.Sections[1].String(); got != "@site[1]" {
		t.Errorf("anonymous section is called %s", got)
	}
	if f.Sections[0].Option("nix") != nil {
		t.Error("found an option that is not there")
	}
}

// TestTextLines checks that what a daemon says of a line of its part of the file is true of the file.
func TestTextLines(t *testing.T) {
	f, err := Parse("conf", []byte(`# a comment

config other
	option x 1
config site 'one'
	option root /x

	list host a
	list host 'b
c'
	option z 1
config other
config site
	option root "/y\
"
	option z 1
`))
	if err != nil {
		t.Fatal(err)
	}
	isSite := func(s *Section) bool { return s.Type == "site" }
	part, err := Parse("conf", f.Text(isSite))
	if err != nil {
		t.Fatal(err)
	}
	f.Sections = slices.DeleteFunc(f.Sections, func(s *Section) bool { return !isSite(s) })
	if !reflect.DeepEqual(part, f) {
		t.Errorf("got %s\nwant %s", show(part), show(f))
	}
}

func show(f *File) string {
	var b strings.Builder
	for _, s := range f.Sections {
		fmt.Fprintf(&b, "\n%+v", *s)
		for _, o := range s.Options {
			fmt.Fprintf(&b, "\n\t%+v", *o)
		}
	}
	return b.String()
}

func TestSyntaxErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"config a\n\toption b 'c\n\toption d e\n", "conf:2: quote ' is never closed"},
		{"config a\n\toption b \"c\\\"\n\n", `conf:2: quote " is never closed`},
		{"config a\n\n  set b c\n", "conf:3: unknown keyword 'set': expected config, option or list"},
		{"option a b\n", "conf:1: 'option' before the first section"},
		{"list a b\n", "conf:1: 'list' before the first section"},
		{"config ''\n", "conf:1: 'config' without arguments"},
		{"config a\noption", "conf:2: 'option' without arguments"},
		{"config a\\ b\n", "conf:1: invalid character in section type 'a b'"},
		{"config a b-c\n", "conf:1: invalid character in section name 'b-c': letters, digits and _ are allowed"},
		{"config a\noption b.c d\n", "conf:2: invalid character in option name 'b.c': letters, digits and _ are allowed"},
		{"package a/b\n", "conf:1: invalid character in package name 'a/b'"},
		{"config a b c\n", "conf:1: unexpected 'c' at the end of the line"},
		{"config a\noption token c secret\n", "conf:2: unexpected text after the value: put a value with blanks in quotes, and each value of a list in a line of its own"},
		{"config a\nlist token 'secret' 'secret'\n", "conf:2: unexpected text after the value: put a value with blanks in quotes, and each value of a list in a line of its own"},
		{"config a b\n#\nconfig c b\n", "conf:3: section 'b' has type 'c' here and 'a' in line 1"},
		{"config a\noption b '\x00'\n", "conf:2: file contains a NUL byte"},
		{"config a b 'c\nd'\n", `conf:1: unexpected 'c\nd' at the end of the line`},
		{"#\n" + strings.Repeat("x", 100), "conf:2: unknown keyword '" + strings.Repeat("x", 60) + "...': expected config, option or list"},
		{strings.Repeat("\n", maxSize+1), "conf:1: file is larger than 1048576 bytes"},
	} {
		f, err := Parse("conf", []byte(test.text))
		var syntax *SyntaxError
		if f != nil || !errors.As(err, &syntax) || err.Error() != test.want {
			t.Errorf("%.80q: %v, want %s", test.text, err, test.want)
		}
	}
}

func TestReadFile(t *testing.T) {
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	f, err := ReadFile("testdata/corpus/plain")
	if err != nil || len(f.Sections) != 1 {
		t.Errorf("got %v, %v", f, err)
	}
	// uci commit on a full flash, and after the last section was deleted
	const cut = ":2: the file is cut off: uci leaves it so if the flash is full"
	for text, want := range map[string]string{
		"": ":1: the file is empty: uci leaves it so if the flash is full", "\n": "",
		"config a\n\toption na": cut, "config a\n\tlist name ": cut,
		"config a\n\toption name b": "", "config a\n\toption name\n": "", // by hand
	} {
		name := filepath.Join(t.TempDir(), "bquic")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(name)
		if said := fmt.Sprint(err); want != "" && said != name+want || want == "" && err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// corpus returns the files of testdata/corpus by name, and contents that cannot be stored
// as text files.
func corpus(tb testing.TB) map[string][]byte {
	tb.Helper()
	files := map[string][]byte{
		"empty":         {},
		"value_control": []byte("config a b\n\toption c 'x\x01y\x7f'\n"),
	}
	paths, err := filepath.Glob("testdata/corpus/*")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no corpus: %v", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		files[filepath.Base(path)] = data
	}
	return files
}

// FuzzParse checks that a parsed file, written in its plainest form, parses to the same
// result, and that all lines are within the file.
func FuzzParse(f *testing.F) {
	for _, data := range corpus(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("conf", data)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Line < 1 || syntax.Line > strings.Count(string(data), "\n")+1 {
				t.Fatalf("%v", err)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("error of several lines: %q", err)
			}
			return
		}
		again, err := Parse("conf", write(file))
		if err != nil {
			t.Fatalf("%v\n%s", err, write(file))
		}
		if want, got := toPlain(file), toPlain(again); !reflect.DeepEqual(want, got) {
			t.Fatalf("read %+v\nand then %+v", want, got)
		}
	})
}

func write(f *File) []byte { return f.Text(func(*Section) bool { return true }) }
