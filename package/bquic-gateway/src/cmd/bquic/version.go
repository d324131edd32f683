// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// Set when a binary is linked (scripts/build-bquic). A package has no commit: the
// same sources make the same bytes, wherever they lie.
var (
	version = "dev"
	commit  string
)

var versionCommand = command{"version", "", "prints the version, and what it was built from", func(_ context.Context, args []string) error {
	if _, err := parseFlags(newFlags("version"), args, 0, 0); err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	printVersion(os.Stdout, info)
	return nil
}}

// printVersion's first line is for scripts: its last word is the version.
func printVersion(w io.Writer, info *debug.BuildInfo) {
	fmt.Fprintln(w, "bquic", version)
	if info == nil {
		return
	}
	fmt.Fprintf(w, "  Go       %s\n", info.GoVersion)
	for _, dep := range info.Deps {
		if dep.Path == "github.com/quic-go/quic-go" {
			fmt.Fprintf(w, "  quic-go  %s, patched\n", dep.Version)
		}
	}
	from := commit
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if from == "" && settings["vcs.revision"] != "" { // of `go build` by itself
		if from = settings["vcs.revision"][:min(12, len(settings["vcs.revision"]))]; settings["vcs.modified"] == "true" {
			from += ", changed"
		}
	}
	if from == "" {
		from = "none: built as a package"
	}
	fmt.Fprintf(w, "  commit   %s\n", from)
}
