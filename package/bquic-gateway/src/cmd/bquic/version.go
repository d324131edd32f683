// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
)

// The linker sets these (scripts/build-bquic). A package has no commit, so that
// the same sources make the same bytes in any directory.
var (
	version = "dev"
	commit  string
)

var versionCommand = command{"version", "", "prints the version, and what it was built from", func(_ context.Context, args []string) error {
	if _, err := parseFlags(newFlags("version"), args, 0, 0); err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	printVersion(&stdout, info)
	return nil
}}

// printVersion prints the version. The last word of the first line is the
// version, for scripts.
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
	if from == "" && settings["vcs.revision"] != "" { // built with plain `go build`
		if from = settings["vcs.revision"][:min(12, len(settings["vcs.revision"]))]; settings["vcs.modified"] == "true" {
			from += ", changed"
		}
	}
	if from == "" {
		from = "none: built as a package"
	}
	fmt.Fprintf(w, "  commit   %s\n", from)
}
