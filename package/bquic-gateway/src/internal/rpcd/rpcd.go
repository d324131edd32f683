// SPDX-License-Identifier: Apache-2.0

package rpcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"bquic/internal/config"
	"bquic/internal/profile"
	"bquic/internal/status"
)

const (
	// rpcd kills a plugin after 30 s, and accepts at most 256 KiB from it
	// (RPC_EXEC_DEFAULT_TIMEOUT and RPC_EXEC_MAX_SIZE in rpcd's exec.h). LuCI waits for 20 s (rpctimeout in its rpc.js).
	fetchTimeout   = 15 * time.Second
	maxConnections = 64
	maxInput       = 64 << 10
)

// errMethod is returned for a method that does not exist.
var errMethod = errors.New("no such method")

// methods are the methods of the ubus object. Their arguments are in the form that rpcd
// expects: a value of each argument's type.
var methods = map[string]map[string]any{
	"status":      {},
	"connections": {},
	"history":     {},
	"profiles":    {},
	"check":       {},
	"fetch":       {"url": "", "pin": "", "profile": "", "ca": ""},
}

// A Plugin answers calls.
type Plugin struct {
	Config string // path of the UCI file
	// Bquic is the path of the command for fetch, this very program.
	Bquic string
	// Check finds mistakes beyond the text of a configuration, such as missing files, and returns each on a line. It
	// may be nil.
	Check func(file string) error
}

// call answers one call with a value for encoding/json. Errors of a method are part of the
// answer, because rpcd would only pass on a number.
func (p *Plugin) call(ctx context.Context, method string, args io.Reader) (any, error) {
	switch method {
	case "status":
		return p.status(), nil
	case "connections":
		return p.connections(), nil
	case "history":
		return p.history(), nil
	case "profiles":
		return p.profiles(), nil
	case "check":
		return p.check(), nil
	case "fetch":
		return p.fetch(ctx, args), nil
	}
	return nil, fmt.Errorf("%q: %w", method, errMethod)
}

// ask returns what both daemons answer to a question, by role; null from one that does not answer.
func ask(gateway, relay config.Daemon, question string) map[string]any {
	answer := make(map[string]any)
	for role, daemon := range map[string]config.Daemon{"gateway": gateway, "relay": relay} {
		data, err := status.Ask(daemon.Socket, question)
		if err != nil {
			data = json.RawMessage("null")
		}
		answer[role] = data
	}
	return answer
}

// status returns the daemons' summaries, and which daemons the file does not start.
func (p *Plugin) status() any {
	gateway, relay, err := config.Daemons(p.Config)
	answer := ask(gateway, relay, status.Summary)
	off := []string{}
	if gateway.Off || err != nil { // without a file, nothing starts
		off = append(off, "gateway")
	}
	if relay.Off || err != nil {
		off = append(off, "relay")
	}
	answer["off"] = off
	return answer
}

// connections returns the latest connections of both daemons.
func (p *Plugin) connections() any {
	gateway, relay, _ := config.Daemons(p.Config)
	answer := ask(gateway, relay, status.Status)
	for role, data := range answer {
		st := struct{ Connections []json.RawMessage }{}
		_ = json.Unmarshal(data.(json.RawMessage), &st)
		answer[role] = append([]json.RawMessage{}, st.Connections[:min(len(st.Connections), maxConnections)]...)
	}
	return answer
}

// history returns the last hours of both daemons.
func (p *Plugin) history() any {
	gateway, relay, _ := config.Daemons(p.Config)
	return ask(gateway, relay, status.History)
}

// A namedProfile is a built-in profile or one from the configuration.
type namedProfile struct {
	Name    string            `json:"name"`
	Doc     string            `json:"doc"`
	Builtin bool              `json:"builtin"`
	Values  map[string]string `json:"values"` // options that differ from stock quic-go
}

func (p *Plugin) profiles() any {
	var profiles []namedProfile
	for _, b := range profile.Builtin() {
		profiles = append(profiles, newProfile(b, true))
	}
	if cfg, err := config.ReadFile(p.Config); err == nil {
		for _, name := range cfg.Profiles.Names() {
			if !slices.ContainsFunc(profiles, func(p namedProfile) bool { return p.Name == name }) {
				profiles = append(profiles, newProfile(cfg.Profiles[name], false))
			}
		}
	}
	stock := make(map[string]string)
	for _, param := range profile.Params {
		stock[param.Name] = param.Stock
	}
	return map[string]any{"profiles": profiles, "stock": stock}
}

func newProfile(p profile.Profile, builtin bool) namedProfile {
	values := make(map[string]string)
	for _, v := range p.Values {
		values[v.Param] = v.Text
	}
	return namedProfile{p.Name, p.Doc, builtin, values}
}

// A result is the result of `bquic check`.
type result struct {
	OK       bool      `json:"ok"`
	Mistakes []mistake `json:"mistakes"`
}

// A mistake is one mistake in the file.
type mistake struct {
	Line    int    `json:"line"` // 0: the file as a whole
	Section string `json:"section"`
	Option  string `json:"option"`
	Text    string `json:"text"`
}

func (p *Plugin) check() any {
	c := result{Mistakes: []mistake{}}
	_, err := config.ReadFile(p.Config)
	if err == nil && p.Check != nil {
		err = p.Check(p.Config)
	}
	var mistakes config.Mistakes
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			c.Mistakes = append(c.Mistakes, mistake{m.Line, m.Section, m.Option, m.Text})
		}
	case errors.Is(err, fs.ErrNotExist) && !exists(p.Config):
		c.Mistakes = append(c.Mistakes, mistake{Text: p.Config + " does not exist"})
	case err != nil:
		for line := range strings.Lines(err.Error()) {
			c.Mistakes = append(c.Mistakes, mistake{Text: strings.TrimSuffix(line, "\n")})
		}
	default:
		c.OK = true
	}
	return c
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// fetch runs `bquic fetch` as a user would.
func (p *Plugin) fetch(ctx context.Context, args io.Reader) any {
	fail := func(text string) any { return map[string]string{"error": text} }
	var a struct{ URL, Pin, Profile, CA string }
	if err := json.NewDecoder(io.LimitReader(args, maxInput)).Decode(&a); err != nil {
		return fail("the arguments are not a JSON object of strings")
	}
	if !strings.HasPrefix(a.URL, "https://") {
		return fail("url: must begin with https://")
	}
	words := []string{"fetch", "--json", "--config=" + p.Config, "--timeout=" + fetchTimeout.String()}
	if a.Pin != "" {
		words = append(words, "--pin="+a.Pin)
	}
	if a.CA != "" {
		words = append(words, "--ca="+a.CA)
	}
	if a.Profile != "" {
		words = append(words, "--profile="+a.Profile)
	}
	// The command has its own timeout; this one applies if it hangs.
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout+2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Bquic, append(words, a.URL)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if len(out) > 0 && json.Valid(out) { // also if the server answered with an error
		return map[string]json.RawMessage{"result": out}
	}
	if err != nil {
		text := strings.TrimSpace(complaint.String())
		if text == "" {
			text = err.Error()
		}
		return fail(strings.ReplaceAll(text, "bquic fetch: ", ""))
	}
	return fail("bquic fetch did not print JSON")
}

// Run is the plugin's command line: `list`, or `call METHOD` with the arguments on in.
func (p *Plugin) Run(ctx context.Context, words []string, in io.Reader, out io.Writer) error {
	var answer any
	switch {
	case len(words) == 1 && words[0] == "list":
		answer = methods
	case len(words) == 2 && words[0] == "call":
		var err error
		if answer, err = p.call(ctx, words[1], in); err != nil {
			return err
		}
	default:
		return errors.New("expected list, or call and a method")
	}
	return json.NewEncoder(out).Encode(answer)
}
