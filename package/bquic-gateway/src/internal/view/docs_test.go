// SPDX-License-Identifier: Apache-2.0

package view

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"bquic/internal/gateway"
	"bquic/internal/history"
	"bquic/internal/relay"
)

// TestDocs looks for each field of what the daemons tell in docs/gateway.md.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../../../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := section(t, string(data), "Status", "Configuration") + section(t, string(data), "Limits", "Profiles")
	for _, st := range []any{gateway.Status{}, relay.Status{}, history.Report{}} {
		for _, name := range fields(reflect.TypeOf(st)) {
			if !strings.Contains(doc, "`"+name+"`") {
				t.Errorf("docs/gateway.md does not say what the field %s of %T means", name, st)
			}
		}
	}
}

// section returns what is between two headings.
func section(t *testing.T, doc, from, to string) string {
	t.Helper()
	_, rest, _ := strings.Cut(doc, "\n## "+from+"\n")
	text, _, ok := strings.Cut(rest, "\n## "+to+"\n")
	if !ok {
		t.Fatalf("docs/gateway.md has no sections %s and %s", from, to)
	}
	return text
}

// fields returns the names in JSON of the fields of a type, and of the types of these.
func fields(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return fields(t.Elem())
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names = append(append(names, name), fields(f.Type)...)
			}
		}
	}
	return names
}
