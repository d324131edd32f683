// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBranches finds the conditional branches in the machine code of the functions that
// handle secrets. All must come from lines that loop over a number of words or
// blocks, test an address, copy an array or grow the stack.
func TestBranches(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package for three processors")
	}
	public := regexp.MustCompile(`^\s*(for |if words |if aligned\(|func |if i--; i == 0 |m\.h, m\.carry = )`)
	symbol := regexp.MustCompile(`^(?:\S*/chacha20poly1305\.)?(\S+) STEXT `)
	instruction := regexp.MustCompile(`^\t0x[0-9a-f]+ \d+ \(.*?([^/]+\.go):(\d+)\)\t(\S+)`)
	branch := regexp.MustCompile(`^[BJ][A-Z]{2,3}$`)
	unconditional := []string{"JMP", "BIC"} // BIC is an AND

	lines := map[string][]string{}
	for _, file := range []string{"chacha20.go", "generic.go", "poly1305.go"} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		lines[file] = strings.Split(string(b), "\n")
	}
	for _, arch := range []string{"mips", "mipsle", "arm"} {
		build := exec.Command("go", "build", "-gcflags=-S", ".")
		build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "GOMIPS=softfloat", "GOFLAGS=")
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
		function := ""
		seen := map[string]int{} // branches by function
		for line := range strings.Lines(string(out)) {
			if m := symbol.FindStringSubmatch(line); m != nil {
				function = m[1]
				continue
			}
			m := instruction.FindStringSubmatch(line)
			if m == nil || !branch.MatchString(m[3]) || slices.Contains(unconditional, m[3]) {
				continue
			}
			switch function {
			case "(*stream).init", "(*stream).xorBlock", "(*mac).init", "addBlocks", "(*mac).sum":
			default:
				continue // sizes and addresses only
			}
			seen[function]++
			n, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			source := "?"
			if n <= len(lines[m[1]]) {
				source = lines[m[1]][n-1]
			}
			require.Regexp(t, public, source, "%s: %s: %s at %s:%d", arch, function, m[3], m[1], n)
		}
		require.NotZero(t, seen["(*stream).xorBlock"], "the loop of the rounds")
		require.NotZero(t, seen["addBlocks"], "the loop over blocks")
		require.NotZero(t, seen["(*mac).sum"], "the loops over words")
	}
}

// TestAssembly finds the branches of the assembly: only the numbers of rounds and of bytes
// decide them.
func TestAssembly(t *testing.T) {
	b, err := os.ReadFile("mips32r2.s")
	require.NoError(t, err)
	var branches []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "\tB") || strings.HasPrefix(line, "\tJ") {
			branches = append(branches, strings.TrimSpace(line))
		}
	}
	require.Equal(t, []string{"BNE R(round), rounds", "BNE R(left), block", "BNE R(left), block"}, branches)
}
