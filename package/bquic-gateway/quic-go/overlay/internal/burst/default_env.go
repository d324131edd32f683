// SPDX-License-Identifier: Apache-2.0

//go:build burstdefault

package burst

import (
	"encoding/json"
	"os"
)

// Default comes from the environment, as JSON, so that quic-go's own tests can
// be run with a profile on.
var Default = func() (c Config) {
	if err := json.Unmarshal([]byte(os.Getenv("QUIC_GO_BURST")), &c); err != nil {
		panic("QUIC_GO_BURST: " + err.Error())
	}
	return c
}()
