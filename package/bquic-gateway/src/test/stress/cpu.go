// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const cpuRepetitions = 5

// The links over which processor time is measured. Without a bottleneck, packets leave in
// large batches, and their cost is that of the program. With a queue, the profile bquic
// acknowledges less.
var cpuLinks = []struct {
	name string
	tbf  string // tc-tbf(8); "": none
	size int64
}{
	{"no bottleneck", "", 1 << 30},
	{"200 Mbit/s", "rate 200mbit burst 64kb latency 20ms", 256 << 20},
}

// A cpuRow is one contender on one link.
type cpuRow struct {
	Link      string    `json:"link"`
	What      string    `json:"what"`
	Contender string    `json:"contender"`
	PerGB     []float64 `json:"cpu_s_per_gb"` // user and system, one per repetition
	Median    float64   `json:"median"`
	Least     float64   `json:"least"`
	Most      float64   `json:"most"`
	Ratio     float64   `json:"ratio"` // of the median to the first contender's
}

// A served transfers size bytes on demand, and returns the processor time of the serving
// processes.
type served struct {
	name     string
	transfer func(ctx context.Context, size int64) (time.Duration, error)
}

// runCPU measures the processor time per GB: of the gateway against Caddy, and of relay and
// gateway with either profile.
func runCPU(ctx context.Context, bquic, output, caddy string) error {
	var rows []cpuRow
	for _, link := range cpuLinks {
		for _, part := range []func(context.Context, *bed, string, string) (string, []served, func(), error){cpuStatic, cpuRelay} {
			more, err := cpuPart(ctx, bquic, caddy, link.name, link.tbf, link.size, part)
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
	}
	if output != "" {
		return writeJSON(output, rows)
	}
	return nil
}

func cpuPart(ctx context.Context, bquic, caddy, link, tbf string, size int64,
	part func(context.Context, *bed, string, string) (string, []served, func(), error)) ([]cpuRow, error) {
	b, err := newBed()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if tbf != "" {
		if err := b.shape(tbf); err != nil {
			return nil, err
		}
	}
	what, contenders, end, err := part(ctx, b, bquic, caddy)
	if end != nil {
		defer end()
	}
	if err != nil {
		return nil, err
	}
	rows := make([]cpuRow, len(contenders))
	for repetition := range cpuRepetitions + 1 {
		for i := range contenders {
			i = (i + repetition) % len(contenders) // each repetition starts with another one
			c := contenders[i]
			used, err := c.transfer(ctx, size)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", what, c.name, err)
			}
			if repetition > 0 { // the first one warms up caches
				rows[i].PerGB = append(rows[i].PerGB, used.Seconds()/float64(size)*1e9)
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		r.Link, r.What, r.Contender = link, what, contenders[i].name
		sorted := slices.Sorted(slices.Values(r.PerGB))
		r.Least, r.Median, r.Most = sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
		r.Ratio = r.Median / rows[0].Median
		fmt.Printf("%-18s %-28s %-16s %6.2f CPU-s/GB (%.2f to %.2f), %.3f\n", r.Link, r.What, r.Contender, r.Median, r.Least, r.Most, r.Ratio)
	}
	return rows, nil
}

// cpuDuring returns the processor time that processes use while do runs.
func cpuDuring(pids []int, do func() error) (time.Duration, error) {
	sum := func() (sum time.Duration, err error) {
		for _, pid := range pids {
			t, terr := cpuTime(pid)
			sum, err = sum+t, errors.Join(err, terr)
		}
		return sum, err
	}
	before, err := sum()
	if err == nil {
		err = do()
	}
	after, aerr := sum()
	return after - before, errors.Join(err, aerr)
}

// shape puts a bottleneck between node and gateway, in both directions.
func (b *bed) shape(tbf string) error {
	for _, end := range [][2]string{{"node", "to-gateway"}, {"gateway", "to-node"}} {
		args := append([]string{"tc", "qdisc", "add", "dev", end[1], "root", "tbf"}, strings.Fields(tbf)...)
		if err := b.command(end[0], args...).Run(); err != nil {
			return fmt.Errorf("tc: %w", err)
		}
	}
	return nil
}

// cpuStatic serves a file by HTTP/3: Caddy and the gateway with both profiles.
func cpuStatic(ctx context.Context, b *bed, bquic, caddy string) (string, []served, func(), error) {
	const what = "static file, HTTP/3, server"
	var gateways []*daemon
	end := func() {
		for _, d := range gateways {
			d.stop()
		}
	}
	var contenders []served
	fetch := func(pid int, url string) func(context.Context, int64) (time.Duration, error) {
		return func(ctx context.Context, size int64) (time.Duration, error) {
			return cpuDuring([]int{pid}, func() error {
				out, err := b.command("node", bquic, "fetch", "--config", "/dev/null", "--profile", "bquic", "--insecure", "--json", url+strconv.FormatInt(size, 10)).Output()
				if err != nil {
					return err
				}
				var result struct {
					Bytes int64 `json:"bytes"`
				}
				if err := json.Unmarshal(out, &result); err != nil || result.Bytes != size {
					return fmt.Errorf("%d of %d bytes came (%v)", result.Bytes, size, err)
				}
				return nil
			})
		}
	}
	for i, profile := range []string{"standard", "bquic"} {
		dir := filepath.Join(b.dir, profile)
		root := filepath.Join(b.dir, "site")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(root, 0o755)); err != nil {
			return what, nil, end, err
		}
		for _, link := range cpuLinks {
			if err := sparse(filepath.Join(root, strconv.FormatInt(link.size, 10)), link.size); err != nil {
				return what, nil, end, err
			}
		}
		port := 8443 + i
		d, err := startDaemon(ctx, b.ns("gateway"), dir, bquic, "gateway", fmt.Sprintf(`
config gateway
	option enabled '1'
	option listen ':%d'
	option state_dir '%s'
	option mesh_profile '%s'
	option status_socket '%s/gateway.sock'
	option log_level 'warn'

config site
	list host '*'
	option root '%s'
`, port, b.dir, profile, dir, root))
		if err != nil {
			return what, nil, end, err
		}
		gateways = append(gateways, d)
		contenders = append(contenders, served{"gateway, " + profile, fetch(d.cmd.Process.Pid, fmt.Sprintf("https://10.78.0.2:%d/", port))})
	}
	file := filepath.Join(b.dir, "Caddyfile")
	err := os.WriteFile(file, fmt.Appendf(nil, "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}\nhttps://:9443 {\n\ttls %s/cert.pem %s/key.pem\n\troot * %s/site\n\tfile_server\n}\n",
		b.dir, b.dir, b.dir), 0o644)
	if err != nil {
		return what, nil, end, err
	}
	cmd := b.command("gateway", "env", "HOME="+b.dir, caddy, "run", "--config", file, "--adapter", "caddyfile")
	log, err := os.Create(filepath.Join(b.dir, "caddy.log"))
	if err != nil {
		return what, nil, end, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return what, nil, end, err
	}
	b.children = append(b.children, cmd)
	err = until(ctx, "Caddy", func() bool {
		out, err := b.command("gateway", "ss", "-Hlun").Output()
		return err == nil && strings.Contains(string(out), ":9443")
	})
	// ip-netns(8) and env(1) exec the program, so the pid is Caddy's.
	contenders = append([]served{{"Caddy", fetch(cmd.Process.Pid, "https://10.78.0.2:9443/")}}, contenders...)
	return what, contenders, end, err
}

// cpuRelay carries a TCP download through relay and gateway, with both profiles.
func cpuRelay(ctx context.Context, b *bed, bquic, _ string) (string, []served, func(), error) {
	const what = "TCP download, relay + gateway"
	if err := b.start("origin", "source", originAddr); err != nil {
		return what, nil, nil, err
	}
	var contenders []served
	for _, profile := range []string{"standard", "bquic"} {
		contenders = append(contenders, served{profile, func(ctx context.Context, size int64) (time.Duration, error) {
			defer b.stopDaemons()
			if err := b.startGateway(ctx, bquic, profile, ""); err != nil {
				return 0, err
			}
			if err := b.startRelay(ctx, bquic, profile); err != nil {
				return 0, err
			}
			pids := []int{b.gateway.cmd.Process.Pid, b.relay.cmd.Process.Pid}
			return cpuDuring(pids, func() error {
				err := b.command("phone", os.Args[0], "drain", originAddr, strconv.FormatInt(size, 10)).Run()
				s, serr := b.relay.status()
				if serr == nil && s.Carried.Total == 0 {
					serr = errors.New("the relay carried nothing")
				}
				return errors.Join(err, serr)
			})
		}})
	}
	return what, contenders, nil, nil
}

// runSource sends each client the number of bytes that it requests, as a number on a line.
func runSource(address string) error {
	return serve(address, func(conn net.Conn) {
		var size int64
		_, err := fmt.Fscanln(conn, &size)
		for n := 0; size > 0 && err == nil; size -= int64(n) {
			n, err = conn.Write(noise[:min(size, int64(len(noise)))])
		}
	})
}

// runDrain requests size bytes from a source and counts them.
func runDrain(address string, size int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, size); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes came", n, size)
	}
	return err
}
