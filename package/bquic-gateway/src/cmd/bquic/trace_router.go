// SPDX-License-Identifier: Apache-2.0

//go:build router

package main

import "context"

// The code that reads and draws a recording is too large for routers' flash,
// and recordings are usually read on a PC. So packages are built with the tag
// router, which omits it.
var traceCommand = command{"trace", "FILE.qlog", "shows how a recorded connection behaved: on a PC, not in this build", func(_ context.Context, args []string) error {
	if _, err := parseFlags(newFlags("trace"), args, 1, 1); err != nil {
		return err
	}
	return usagef("not in a router's build: copy the recording to a PC and read it there, with a bquic from `make build`")
}}
