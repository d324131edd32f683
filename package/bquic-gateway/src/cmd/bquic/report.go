// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"bquic/internal/config"
	"bquic/internal/proof"
	"bquic/internal/view"
)

var reportCommand = command{"report", "", "says whether the relay helps here", runReport}

// export is the report that an operator can share: it contains no addresses.
type export struct {
	Version string `json:"version"`
	Profile string `json:"profile"`
	proof.Report
}

func runReport(_ context.Context, args []string) error {
	f := newFlags("report")
	file := configFlag(f)
	socket := f.String("socket", "", "queries the relay at this socket `PATH`")
	asJSON := f.Bool("json", false, "prints one JSON object without addresses, to share with others")
	if _, err := parseFlags(f, args, 0, 0); err != nil {
		return err
	}
	relay := config.Daemon{Socket: *socket}
	if *socket == "" {
		var err error
		if _, relay, err = configuredDaemons(f, *file); err != nil {
			return err
		}
	}
	d, err := askDaemons(relay)
	if err != nil {
		return err
	}
	if d.relay == nil {
		return errors.New("a gateway answers, expected a relay")
	}
	if !*asJSON {
		fmt.Fprint(&stdout, view.Report(d.relay))
		return nil
	}
	var st struct {
		Version string       `json:"version"`
		Profile string       `json:"profile"`
		Proof   proof.Report `json:"proof"`
	}
	if err := json.Unmarshal(d.relay, &st); err != nil {
		return err
	}
	data, err := json.MarshalIndent(export{st.Version, st.Profile, st.Proof.Anonymous()}, "", "  ")
	if err == nil {
		fmt.Fprintf(&stdout, "%s\n", data)
	}
	return err
}
