// Command bench measures the electors of incumbent, istiod and client-go on one API server in one run. It writes the
// tables of docs/benchmarks.md.
//
//	go run ./bench                          all scenarios, about forty minutes
//	go run ./bench -quick                   all scenarios in seven minutes, printed only
//	go run ./bench -scenarios graceful,crash
//	go run ./bench -resume                  scenarios that were not measured with this commit
//	go run ./bench -render                  measures nothing, writes the page
//
// Run it in tests/peers. It stores the results of each scenario.
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
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/witness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
)

const (
	latest      = "results/latest.json"
	quickLatest = "results/quick.json.tmp"
	page        = "../../docs/benchmarks.md"
)

type flags struct {
	quick, resume, render, witness bool
	child                          int
	scenarios                      string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	var f flags
	flag.BoolVar(&f.quick, "quick", false, "fewer rounds; print the tables and do not change the page")
	flag.BoolVar(&f.resume, "resume", false, "skip scenarios that were measured with this commit")
	flag.BoolVar(&f.render, "render", false, "measure nothing, write the page from "+latest)
	flag.StringVar(&f.scenarios, "scenarios", strings.Join(Scenarios, ","), "scenarios to measure")
	flag.IntVar(&f.child, "child", -1, "run as a process of candidates of this library (internal)")
	flag.BoolVar(&f.witness, "witness", false, "start this process as the child of its witness (internal)")
	flag.Parse()
	candidates := func(context.Context) error { return serve(electors.Library(f.child), os.Getenv("KUBECONFIG")) }
	switch {
	case f.child >= 0 && f.witness:
		witness.Main(candidates)
	case f.child >= 0:
		return candidates(context.Background())
	case f.render:
		return render()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return measure(ctx, f)
}

// wanted returns the scenarios to measure in order.
func (f flags) wanted(results *Results) ([]string, error) {
	var wanted []string
	for name := range strings.SplitSeq(f.scenarios, ",") {
		if !slices.Contains(Scenarios, name) {
			return nil, fmt.Errorf("unknown scenario %q: want one of %s", name, strings.Join(Scenarios, ","))
		}
		done := results.Scenarios[name]
		if f.resume && done != nil && done.Versions[Ours] == commit() && !strings.HasSuffix(commit(), "+") {
			fmt.Printf("%s has already been measured\n", name)
			continue
		}
		wanted = append(wanted, name)
	}
	return wanted, nil
}

func measure(ctx context.Context, f flags) (err error) {
	path, results := latest, &Results{Scenarios: map[string]*Scenario{}}
	if f.quick {
		path = quickLatest
	} else if results, err = Read(latest); err != nil {
		return err
	}
	wanted, err := f.wanted(results)
	if err != nil || len(wanted) == 0 {
		return err
	}
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{WithoutControllers: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	lab, err := newLab(ctx, c, f.quick)
	if err != nil {
		return err
	}
	for _, names := range groups(wanted, f.quick) {
		fmt.Printf("\n%s …\n", strings.Join(names, ", "))
		measured, err := lab.measureAll(names)
		if err != nil {
			return err
		}
		for _, name := range names {
			results.Scenarios[name] = measured[name]
			fmt.Printf("%s measured\n", name)
		}
		if err := results.Write(path); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s\n%s\n%s\n%s\nFinished after %v.\n", results.Times(), results.Requests(), results.Scale(), results.Herd(), time.Since(began).Round(time.Second))
	if f.quick {
		fmt.Println("A quick run has few rounds: its p99 is the slowest round.")
		return nil
	}
	return render()
}

// groups returns the scenarios that run concurrently. A full run measures them one after the other.
func groups(wanted []string, quick bool) [][]string {
	if !quick {
		return slices.Collect(slices.Chunk(wanted, 1))
	}
	var all [][]string
	for _, together := range [][]string{{Graceful, Requests}, {Crash, Scale}, {Steal}, {Kill}, {Crowd}} {
		together = slices.DeleteFunc(together, func(name string) bool { return !slices.Contains(wanted, name) })
		if len(together) > 0 {
			all = append(all, together)
		}
	}
	return all
}

// render writes the page, and the results as it read them, so that both have the same checksum.
func render() error {
	results, err := Read(latest)
	if err != nil {
		return err
	}
	if err := results.Write(latest); err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := results.Page(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
