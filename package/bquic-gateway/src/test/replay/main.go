// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run() error {
	protocol := flag.String("protocol", "h2", "`h1` or h2: HTTP/1.1 by up to six connections, or HTTP/2 by one")
	page := flag.String("page", "", "`name` of the recorded page")
	flag.Parse()
	if flag.NArg() != 2 {
		return fmt.Errorf("recordings and a URL are needed, not %q", flag.Args())
	}
	text, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		return err
	}
	objects, err := parse(text, *page)
	if err != nil {
		return fmt.Errorf("%s: %w", flag.Arg(0), err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	result, err := load(ctx, objects, *protocol, flag.Arg(1)+"/pages/"+*page+"/")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
