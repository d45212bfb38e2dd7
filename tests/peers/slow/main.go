// Command slow measures elections whose API server answers late, or whose connections are dead, and prints a table. It compares
// incumbent with client-go. All elections run concurrently, with one candidate each.
//
//	go run ./slow                     all scenarios, in two minutes
//	go run ./slow -scenarios frozen   some scenarios
//
// Run it in tests/peers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-multierror"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// window is how long each election is measured.
var window = 90 * time.Second

// settings are the durations of an election and the latencies to measure.
type settings struct {
	timing electors.Timing
	late   []time.Duration
}

var timings = []settings{
	{electors.KubernetesTiming, []time.Duration{
		500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 4900 * time.Millisecond, 6 * time.Second, 8 * time.Second,
	}},
	{electors.IstioTiming, []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 7400 * time.Millisecond}},
}

// row is one election.
type row struct {
	scenario string
	library  electors.Library
	timing   electors.Timing
	late     time.Duration

	first             time.Duration // until the first term; negative without a term
	lost, conns, sent int
	led               time.Duration // in the window
	said              []string      // log lines about the latency
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "slow:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	names := flag.String("scenarios", strings.Join(scenarioNames(), ","), "scenarios to measure")
	verbose := flag.Bool("v", false, "print the logs of incumbent")
	only := flag.Duration("d", 0, "measure only this latency")
	flag.DurationVar(&window, "window", window, "how long each election is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := cluster.Start(ctx, cluster.Options{WithoutControllers: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	namespace, err := c.NewNamespace(ctx, "slow")
	if err != nil {
		return err
	}
	upstream, err := rest.TransportFor(c.Admin())
	if err != nil {
		return err
	}
	l := &lab{ctx: ctx, admin: c.Admin(), upstream: upstream, namespace: namespace, verbose: *verbose}
	var rows []*row
	for _, s := range scenarios {
		if !slices.Contains(strings.Split(*names, ","), s.name) {
			continue
		}
		for _, t := range timings {
			for _, late := range s.latencies(t) {
				if *only != 0 && late != *only && s.late {
					continue
				}
				for _, library := range []electors.Library{electors.Incumbent, electors.ClientGo} {
					rows = append(rows, &row{scenario: s.name, library: library, timing: t.timing, late: late})
				}
			}
		}
	}
	var all multierror.Group
	for i, r := range rows {
		all.Go(func() error { return l.measure(r, fmt.Sprintf("e%d", i)) })
	}
	if err := all.Wait().ErrorOrNil(); err != nil {
		return err
	}
	return table(rows)
}

// table prints the rows.
func table(rows []*row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\ttiming\tD\telector\tfirst term after\tterms lost\tled\tconnections\trequests\tlogged")
	for _, r := range rows {
		first := "–"
		if r.first >= 0 {
			first = fmt.Sprintf("%.1f s", r.first.Seconds())
		}
		fmt.Fprintf(w, "%s\t%v\t%.1f s\t%v\t%s\t%d\t%.0f %%\t%d\t%d\t%s\n", r.scenario, r.timing, r.late.Seconds(), r.library,
			first, r.lost, 100*r.led.Seconds()/window.Seconds(), r.conns, r.sent, strings.Join(r.said, " · "))
	}
	return w.Flush()
}
