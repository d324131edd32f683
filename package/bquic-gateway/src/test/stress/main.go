// SPDX-License-Identifier: Apache-2.0

//go:build abuse

// Stress puts load on real bquic daemons and attacks them, only in network namespaces, and
// monitors their resources.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const usage = `stress abuse BQUIC [-o JSON] DURATION [ATTACK...]   (alone in a network namespace)
       stress load BQUIC [-o JSON] TIME           (makes namespaces)
       stress soak BQUIC [-o JSON] TIME MEDIUM    (makes namespaces)
       stress cpu BQUIC [-o JSON] CADDY           (makes namespaces)
       stress fleet BQUIC [-o JSON] PEERS CONNECTIONS GREED MIB TIME   (makes namespaces)
       stress list`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command, rest := "", args
	if len(args) > 0 {
		command, rest = args[0], args[1:]
	}
	bquic, output := "", ""
	switch command {
	case "abuse", "load", "soak", "cpu", "fleet":
		if len(rest) > 0 {
			bquic, rest = rest[0], rest[1:]
		}
		if len(rest) > 1 && rest[0] == "-o" {
			output, rest = rest[1], rest[2:]
		}
	}
	duration := func(i int) (d time.Duration) {
		if i < len(rest) {
			d, _ = time.ParseDuration(rest[i])
		}
		return d
	}
	number := func(i int) (n int) {
		if i < len(rest) {
			n, _ = strconv.Atoi(rest[i])
		}
		return n
	}
	switch {
	case command == "abuse" && duration(0) > 0:
		return runAbuse(ctx, bquic, output, duration(0), rest[1:])
	case command == "load" && duration(0) > 0:
		return runLoad(ctx, bquic, output, duration(0))
	case command == "soak" && duration(0) > 0 && len(rest) == 2:
		return runSoak(ctx, bquic, output, duration(0), rest[1])
	case command == "cpu" && len(rest) == 1:
		return runCPU(ctx, bquic, output, rest[0])
	case command == "fleet" && number(0) > 0 && number(1) > 0 && number(2) > 0 && number(3) > 0 && duration(4) > 0:
		return runFleet(ctx, bquic, output, number(0), number(1), number(2), number(3), duration(4))
	case command == "list":
		for _, a := range attacks {
			fmt.Printf("%-20s %s\n", a.name, a.doc)
		}
		return nil

	// Roles of processes that the commands above start.
	case command == "attack" && duration(1) > 0:
		return runAttack(rest[0], duration(1))
	case command == "browse" && duration(1) > 0:
		return runBrowse(ctx, rest[0], duration(1))
	case command == "transfers" && duration(1) > 0:
		return runTransfers(ctx, rest[0], duration(1))
	case command == "source" && len(rest) == 1:
		return runSource(rest[0])
	case command == "drain" && len(rest) == 2:
		size, err := strconv.ParseInt(rest[1], 10, 64)
		if err != nil {
			return err
		}
		return runDrain(rest[0], size)
	case command == "sizes" && len(rest) == 1:
		return runSizes(rest[0])
	case command == "fleet-peers" && number(0) > 0 && number(1) > 0 && number(2) > 0 && duration(3) > 0:
		return runFleetPeers(ctx, number(0), number(1), number(2), duration(3))
	case command == "echo" && len(rest) == 1:
		return runEcho(rest[0])
	case command == "connections" && len(rest) == 2:
		n, err := strconv.Atoi(rest[1])
		if err != nil {
			return err
		}
		return runConnections(ctx, rest[0], n)
	}
	return fmt.Errorf("usage: %s", usage)
}
