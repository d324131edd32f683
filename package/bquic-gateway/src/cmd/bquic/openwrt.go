// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"bquic/internal/divert"
	"bquic/internal/openwrt"
)

func init() {
	commands = append(commands, command{"openwrt", "ROLE", "tells OpenWrt's init script how to run the gateway or the relay", runOpenWrt})
}

func runOpenWrt(_ context.Context, args []string) error {
	f := newFlags("openwrt")
	file := configFlag(f)
	dir := f.String("dir", string(openwrt.DefaultFiles), "`DIRECTORY` for root's files")
	prepare := f.Bool("prepare", false, "makes the files and directories that the daemon needs")
	clean := f.Bool("clean", false, "only removes what a killed relay has left in the kernel")
	user := f.String("user", "0:0", "`UID:GID` that the daemon runs as")
	rest, err := parseFlags(f, args, 1, 1)
	if err != nil {
		return err
	}
	role := rest[0]
	if role != openwrt.Gateway && role != openwrt.Relay {
		return usagef("%q is neither %s nor %s", role, openwrt.Gateway, openwrt.Relay)
	}
	uid, gid, err := parseUser(*user)
	if err != nil {
		return err
	}
	if *clean {
		if role == openwrt.Relay {
			return divert.Clean()
		}
		return nil
	}
	plan, cfg, err := openwrt.Load(*file, role)
	if err != nil {
		return usageError{err}
	}
	var lines bytes.Buffer
	if err := plan.Print(&lines, openwrt.Files(*dir)); err != nil {
		return usagef("%s: %w", *file, err)
	}
	changed := false
	if plan.Enabled {
		cfg.Gateway.Enabled, cfg.Relay.Enabled = role == openwrt.Gateway, role == openwrt.Relay
		check := func() error { return checkDaemons(cfg) }
		if *prepare {
			changed, err = plan.Prepare(openwrt.Files(*dir), uid, gid, check)
		} else {
			err = plan.Refuse(openwrt.Files(*dir), uid, check)
		}
		if err != nil {
			return mistakesIn(*file, err)
		}
	}
	if changed {
		fmt.Fprintln(&lines, "changed 1")
	}
	_, err = lines.WriteTo(&stdout)
	return err
}

func parseUser(text string) (uid, gid int, err error) {
	u, g, _ := strings.Cut(text, ":")
	uid, uerr := strconv.Atoi(u)
	gid, gerr := strconv.Atoi(g)
	if uerr != nil || gerr != nil || uid < 0 || gid < 0 {
		return 0, 0, usagef("--user: %q is not UID:GID", text)
	}
	return uid, gid, nil
}
