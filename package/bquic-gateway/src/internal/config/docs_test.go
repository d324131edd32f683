// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"bquic/internal/profile"
)

const docsFile = "../../../../../docs/gateway.md"

var update = flag.Bool("update", false, "writes the tables of docs/gateway.md")

// TestDocs compares the tables of docs/gateway.md with the schema and the profiles.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]string{"options": optionTables(t), "profiles": profileTables()} {
		begin, end := fmt.Sprintf("<!-- %s: begin -->\n", name), fmt.Sprintf("<!-- %s: end -->\n", name)
		before, rest, ok1 := bytes.Cut(data, []byte(begin))
		old, after, ok2 := bytes.Cut(rest, []byte(end))
		if !ok1 || !ok2 {
			t.Fatalf("%s has no place for %s", docsFile, name)
		}
		if string(old) == table {
			continue
		}
		if !*update {
			t.Errorf("%s: the %s differ from the program's. To write them: go test ./internal/config -run TestDocs -update", docsFile, name)
			continue
		}
		data = bytes.Join([][]byte{before, []byte(begin), []byte(table), []byte(end), after}, nil)
	}
	if *update {
		if err := os.WriteFile(docsFile, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// texts returns what is said of sections and their options: of a profile's parameters where they are defined, of the others in schema.go's comments.
func texts(t *testing.T) map[string]string {
	data, err := os.ReadFile("schema.go")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]string)
	for _, p := range profile.Params {
		said["profile."+p.Name] = p.Doc
	}
	sections, options := regexp.MustCompile(`^Type: +"(\w+)"`), regexp.MustCompile(`\{Name: "(\w+)"`)
	section, comment := "", ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if m := sections.FindStringSubmatch(line); m != nil {
			section = m[1]
			said[section] = comment
		} else if m := options.FindStringSubmatch(line); m != nil {
			said[section+"."+m[1]] = comment
		}
		comment = ""
		if strings.HasPrefix(line, "// ") {
			comment = line[3:]
		}
	}
	return said
}

func optionTables(t *testing.T) string {
	var b strings.Builder
	said := texts(t)
	of := func(name string) string {
		if said[name] == "" {
			t.Errorf("schema.go does not say what %s is", name)
		}
		return said[name]
	}
	cell := strings.NewReplacer("|", `\|`)
	for _, s := range Schema {
		fmt.Fprintf(&b, "\n### `config %s`\n\n%s\n\n| option | value | default | meaning |\n|---|---|---|---|\n", s.Type, of(s.Type))
		for _, o := range s.Options {
			word, value, def := "option", o.Type.Name, o.Note
			if o.List {
				word = "list"
			}
			if o.Unit != "" {
				value += " (" + o.Unit + ")"
			}
			if len(o.Default) > 0 {
				def = "`" + strings.Join(o.Default, "` `") + "`"
			}
			fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s |\n", word, o.Name, cell.Replace(value), cell.Replace(def), cell.Replace(of(s.Type+"."+o.Name)))
		}
	}
	return b.String() + "\n"
}

func profileTables() string {
	var b strings.Builder
	profiles := profile.Builtin()
	b.WriteString("\n| parameter | unit |")
	for _, p := range profiles {
		fmt.Fprintf(&b, " `%s` |", p.Name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(profiles)) + "\n")
	for _, param := range profile.Params {
		fmt.Fprintf(&b, "| `%s` | %s |", param.Name, param.Unit)
		for _, p := range profiles {
			text := "*" + param.Stock + "*"
			for _, v := range p.Values {
				if v.Param == param.Name {
					text = v.Text
				}
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nValues in italics are those of stock quic-go. Where the others are from:\n")
	for _, p := range profiles[1:] {
		fmt.Fprintf(&b, "\n- `%s`: %s\n", p.Name, p.Doc)
		for _, v := range p.Values {
			fmt.Fprintf(&b, "  - `%s` %s: %s\n", v.Param, v.Text, v.Source)
		}
	}
	return b.String() + "\n"
}
