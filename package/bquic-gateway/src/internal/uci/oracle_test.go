// SPDX-License-Identifier: Apache-2.0

package uci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// withoutOracle is the environment variable that skips the comparison with libuci,
// where cargo is not available.
const withoutOracle = "BQUIC_TEST_WITHOUT_CARGO"

// plain is the form in which libuci's result and ours are compared.
type plain struct {
	Type    string        `json:"type"`
	Name    string        `json:"name"`
	Options []plainOption `json:"options"`
}

type plainOption struct {
	Name   string   `json:"name"`
	List   bool     `json:"list"`
	Values []string `json:"values"`
}

// TestLibuci compares the parser with the real libuci, on the corpus and on random
// files made of the language's words.
func TestLibuci(t *testing.T) {
	if os.Getenv(withoutOracle) != "" {
		t.Skipf("left out because %s is set", withoutOracle)
	}
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		cargo = filepath.Join(os.Getenv("HOME"), ".cargo", "bin", "cargo")
		if _, err := os.Stat(cargo); err != nil {
			t.Fatalf("cargo is needed to build libuci, which the reader is compared with. To leave that out, set %s=1", withoutOracle)
		}
	}
	dir := t.TempDir()
	files := corpus(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		files[fmt.Sprintf("random%d", i)] = randomFile(random)
	}
	var names []string
	for name, data := range files {
		names = append(names, name)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	target, err := filepath.Abs("../../../../../.cache/uci-oracle")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cargo, "run", "--quiet", "--manifest-path", "testdata/oracle/Cargo.toml", "--", dir)
	cmd.Env = append(os.Environ(), "CARGO_TARGET_DIR="+target)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("libuci: %v\n%s", err, stderr.Bytes())
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(names) {
		t.Fatalf("libuci answered for %d of %d files", len(lines), len(names))
	}
	good := 0
	for i, name := range names {
		var want []plain
		if err := json.Unmarshal([]byte(lines[i]), &want); err != nil {
			t.Fatalf("%s: %v in %q", name, err, lines[i])
		}
		f, err := Parse(name, files[name])
		switch {
		case err == nil && openedThrice(f): // libuci loses track of such a section
		case want == nil && err == nil:
			t.Errorf("%s: libuci rejects it\n%q\n%+v", name, files[name], toPlain(f))
		case want != nil && err != nil:
			t.Errorf("%s: libuci accepts it: %v\n%q", name, err, files[name])
		case want != nil && !reflect.DeepEqual(want, toPlain(f)):
			t.Errorf("%s: %q\nlibuci %+v\nours   %+v", name, files[name], want, toPlain(f))
		}
		if want != nil {
			good++
		}
	}
	if good < len(names)/10 || good > len(names)*9/10 {
		t.Errorf("libuci accepts %d of %d files: too few of one kind to compare", good, len(names))
	}
}

func openedThrice(f *File) bool {
	return slices.ContainsFunc(f.Sections, func(s *Section) bool { return len(s.Again) > 1 })
}

func toPlain(f *File) []plain {
	ps := []plain{}
	for _, s := range f.Sections {
		p := plain{Type: latin1(s.Type), Name: s.Name, Options: []plainOption{}}
		for _, o := range s.Options {
			po := plainOption{Name: o.Name, List: o.List}
			for _, v := range o.Values {
				po.Values = append(po.Values, latin1(v.Text))
			}
			p.Options = append(p.Options, po)
		}
		ps = append(ps, p)
	}
	return ps
}

// latin1 maps bytes to characters as the oracle does.
func latin1(s string) string {
	rs := make([]rune, len(s))
	for i := range len(s) {
		rs[i] = rune(s[i])
	}
	return string(rs)
}

func randomFile(r *rand.Rand) []byte {
	lines := []string{
		"config a 'b'\n", "config a\n", "config c \"d\"\r\n", "\toption c 'd'\n", "\tlist l 'm'\n", "\toption c e\n", "option \"c\" f # g\n",
		"\tlist l ''\n", "\toption c ''\n", "option n 'x\ny'\n", "option n x\\\ny\n", "# comment\n", "option o 'p' ; list 'q' 'r'\n", "\n",
	}
	words := []string{
		"config", "option", "list", "package", "c", "o", "l", " ", "\t", "\n", "\r\n",
		"a", "b", "name", "x-y", "'", "\"", "\\", "\\\n", ";", "#", "''", "\"\"", "'q r'", "\"s t\"", " a", " b", "\v", "é",
	}
	var b bytes.Buffer
	if r.IntN(4) > 0 {
		b.WriteString("config a 'b'\n")
	}
	for range 1 + r.IntN(12) {
		if r.IntN(5) > 0 {
			b.WriteString(lines[r.IntN(len(lines))])
		} else {
			b.WriteString(words[r.IntN(len(words))])
		}
	}
	return b.Bytes()
}
