// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"bquic/internal/peer"
)

var tokenCommand = command{"token", "", "makes a token for a relay", runToken}

func runToken(_ context.Context, args []string) error {
	if _, err := parseFlags(newFlags("token"), args, 0, 0); err != nil {
		return err
	}
	token := peer.NewToken()
	fmt.Fprintf(&stdout, "# on the relay, in config relay:\n\toption token '%s'\n# on the gateway, in the relay's config peer:\n\tlist token '%s'\n", token, peer.HashOf(token))
	return nil
}
