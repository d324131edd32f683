// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"bquic/internal/config"
	"bquic/internal/proof"
	"bquic/internal/status"
	"bquic/internal/view"
)

var reportCommand = command{"report", "", "says whether relay and scheduler help here", runReport}

// schedulerSockets is the directory with the control sockets of the node's wifirrds.
const schedulerSockets = "/var/run/wifirr"

// export is the report that an operator can share: it contains no addresses.
type export struct {
	Version string `json:"version"`
	Profile string `json:"profile"`
	proof.Report
	Schedulers []view.Scheduler `json:"schedulers"`
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
	schedulers := askSchedulers(schedulerSockets)
	d, err := askDaemons(relay)
	if err == nil && d.relay == nil {
		err = errors.New("a gateway answers, expected a relay")
	}
	if !*asJSON {
		if err == nil {
			fmt.Fprint(&stdout, view.Report(d.relay))
		}
		fmt.Fprint(&stdout, view.Trials(schedulers))
		return err
	}
	if err != nil {
		return err
	}
	var st struct {
		Version string       `json:"version"`
		Profile string       `json:"profile"`
		Proof   proof.Report `json:"proof"`
	}
	if err := json.Unmarshal(d.relay, &st); err != nil {
		return err
	}
	data, err := json.MarshalIndent(export{st.Version, st.Profile, st.Proof.Anonymous(), schedulers}, "", "  ")
	if err == nil {
		fmt.Fprintf(&stdout, "%s\n", data)
	}
	return err
}

// askSchedulers asks each wifirrd. Other files there, and the sockets of dead ones, do not answer.
func askSchedulers(dir string) []view.Scheduler {
	files, _ := os.ReadDir(dir)
	schedulers := []view.Scheduler{}
	for _, f := range files {
		data, err := status.Ask(dir+"/"+f.Name(), "status")
		var s view.Scheduler
		if err == nil && json.Unmarshal(data, &s) == nil {
			schedulers = append(schedulers, s)
		}
	}
	return schedulers
}
