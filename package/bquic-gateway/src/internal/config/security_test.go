// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityDocs checks that the tests that docs/security.md names exist.
func TestSecurityDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) == 0 {
		t.Error("no test is named")
	}
	for _, n := range named {
		if !declared(t, filepath.Join("..", n[1], "*_test.go"), "func "+n[2]+"(") {
			t.Errorf("there is no %s in internal/%s", n[2], n[1])
		}
	}
	for _, row := range regexp.MustCompile("attacks? (`[a-z0-9-]+`(?:, `[a-z0-9-]+`)*)").FindAllStringSubmatch(string(doc), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if !declared(t, "../../test/stress/attacks.go", `{name: "`+strings.Trim(name, "`")+`"`) {
				t.Errorf("there is no attack %s", name)
			}
		}
	}
}

func declared(t *testing.T, pattern, text string) bool {
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), text) {
			return true
		}
	}
	return false
}
