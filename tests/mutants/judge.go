package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// test is one test of a suite, or all of them where starting them costs the most, with
// what was seen of it when no mutant was on.
type test struct {
	suite *suite
	names []string
	// took is how long it ran alone, reached the mutants that it came past.
	took    time.Duration
	reached map[int]bool
}

// cost is what tests are ordered by: cheap ones are all the same, so that those of a
// suite stay together.
func (t *test) cost() time.Duration {
	if t.took < cheap {
		return 0
	}
	return t.took
}

// Times that a test run is allowed.
const (
	baseLimit = 8 * time.Minute
	// A mutant that makes a test this much slower than it was has changed something.
	// What loops is known by the processor's time, which other programs on the machine
	// do not change; what hangs, by the clock.
	slowdown      = 5
	leastWork     = 4 * time.Second
	leastPatience = 12 * time.Second
	// Tests below cheap go into one run, up to oneBatch.
	cheap    = 400 * time.Millisecond
	oneBatch = 4 * time.Second
)

// run starts tests of a suite.
func (s *suite) run(ctx context.Context, tests []string, work, limit time.Duration, env ...string) (string, error) {
	// The test's own time-out comes first: it says where things hang. The other one is
	// for a program that does not answer.
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	// A mutant may allocate without end.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `ulimit -d 6000000; ulimit -t "$1"; shift; exec "$@"`,
		"sh", strconv.Itoa(int(work.Seconds())+1), s.binary,
		"-test.run=^("+strings.Join(tests, "|")+")$", "-test.failfast", "-test.count=1", "-test.timeout="+limit.String())
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), s.env...), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	return out.String(), err
}

// run starts tests of a suite with the mutants, on the cluster that stands for it.
func (p *planted) run(ctx context.Context, s *suite, tests []string, work, limit time.Duration, env string) (string, error) {
	where, err := p.clusters.environment(ctx, s.cluster)
	if err != nil {
		return "", err
	}
	out, err := s.run(ctx, tests, work, limit, append(where, env, p.goflags())...)
	return out, errors.Join(err, p.clusters.after(ctx, s.cluster, err != nil))
}

// measure runs each test alone and notes what it reaches, unless that is known of this
// build.
func (p *planted) measure(ctx context.Context, known *state, suites []*suite, workers int) ([]*test, error) {
	var tests []*test
	for _, s := range suites {
		if s.together {
			tests = append(tests, &test{suite: s, names: s.tests, reached: map[int]bool{}})
			continue
		}
		for _, name := range s.tests {
			tests = append(tests, &test{suite: s, names: []string{name}, reached: map[int]bool{}})
		}
	}
	var mu sync.Mutex
	return tests, each(ctx, workers, tests, func(t *test) error {
		mu.Lock()
		before, measured := known.Tests[t.key()]
		mu.Unlock()
		if !measured {
			if err := p.measureOne(ctx, t); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			known.Tests[t.key()] = seen{Took: t.took, Reached: slices.Sorted(maps.Keys(t.reached))}
			return nil
		}
		t.took = before.Took
		for _, id := range before.Reached {
			t.reached[id] = true
		}
		return nil
	})
}

func (t *test) key() string {
	return t.suite.pkg + " " + strings.Join(t.suite.env, " ") + " " + strings.Join(t.names, " ")
}

func (p *planted) measureOne(ctx context.Context, t *test) error {
	reached := filepath.Join(p.work, fmt.Sprintf("reached-%s-%s", filepath.Base(t.suite.binary), t.names[0]))
	defer os.Remove(reached)
	if _, err := p.clusters.environment(ctx, t.suite.cluster); err != nil {
		return err // its start is no part of what the test takes
	}
	began := time.Now()
	out, err := p.run(ctx, t.suite, t.names, 2*baseLimit, baseLimit, envReached+"="+reached)
	t.took = time.Since(began)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s of %s fails without a mutant: %w\n%s", strings.Join(t.names, ", "), t.suite.pkg, err, tail(out))
	}
	text, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, line := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return fmt.Errorf("what %s reached: %w", t.names[0], err)
		}
		t.reached[id] = true
	}
	return nil
}

// goflags lets programs that a test builds have the mutants too.
func (p *planted) goflags() string {
	return "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+p.overlay)
}

// each calls do for all, some at a time, and gives the first error.
func each[T any](ctx context.Context, workers int, all []T, do func(T) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
		next  = make(chan T)
	)
	for range workers {
		wg.Go(func() {
			for one := range next {
				if err := do(one); err != nil {
					mu.Lock()
					first = cmp.Or(first, err)
					mu.Unlock()
				}
			}
		})
	}
feed:
	for _, one := range all {
		mu.Lock()
		failed := first != nil
		mu.Unlock()
		if failed {
			break
		}
		select {
		case next <- one:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	return cmp.Or(first, ctx.Err())
}

// Outcomes of a mutant.
const (
	outcomeKilled    = "killed"
	outcomeTimeout   = "timeout" // killed by the clock: a test ran much longer than without it
	outcomeSurvived  = "survived"
	outcomeUnreached = "unreached" // survived as no test comes past it
)

// result is what became of one mutant.
type result struct {
	Outcome string `json:"outcome"`
	// By is the test that failed.
	By string `json:"by,omitempty"`
	// Passes is how many passes it has come through.
	Passes int `json:"passes"`
}

func (r result) killed() bool { return r.Outcome == outcomeKilled || r.Outcome == outcomeTimeout }

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try runs the tests that reach a mutant, the cheapest first, until one fails.
func (p *planted) try(ctx context.Context, m *mutant, tests []*test) (result, error) {
	var reaching []*test
	for _, t := range tests {
		if t.reached[m.id] {
			reaching = append(reaching, t)
		}
	}
	if len(reaching) == 0 {
		return result{Outcome: outcomeUnreached}, nil
	}
	slices.SortStableFunc(reaching, func(a, b *test) int { return cmp.Compare(a.cost(), b.cost()) })
	for _, batch := range batches(reaching) {
		names := make([]string, 0, len(batch))
		took := time.Duration(0)
		for _, t := range batch {
			names, took = append(names, t.names...), took+t.took
		}
		out, err := p.run(ctx, batch[0].suite, names, leastWork+slowdown*took, (leastPatience + slowdown*took).Round(time.Second),
			envMutant+"="+strconv.Itoa(m.id))
		if ctx.Err() != nil {
			return result{}, ctx.Err()
		}
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, exec.ErrWaitDelay) {
			return result{}, fmt.Errorf("running %v: %w", names, err)
		}
		r := result{Outcome: outcomeKilled, By: names[0]}
		if found := failed.FindStringSubmatch(out); found != nil {
			r.By = found[1]
		}
		if strings.Contains(out, "test timed out after") || strings.Contains(out, "SIGXCPU") || exit == nil || exit.ExitCode() < 0 {
			r.Outcome = outcomeTimeout
		}
		return r, nil
	}
	return result{Outcome: outcomeSurvived}, nil
}

// batches puts cheap tests of one suite into one run, and leaves costly ones alone.
func batches(tests []*test) [][]*test {
	var all [][]*test
	var sum time.Duration
	for _, t := range tests {
		last := len(all) - 1
		if last >= 0 && all[last][0].suite == t.suite && t.cost() == 0 && sum+t.took < oneBatch {
			all[last], sum = append(all[last], t), sum+t.took
			continue
		}
		all, sum = append(all, []*test{t}), t.took
	}
	return all
}

// tail is the end of a test's output.
func tail(out string) string {
	const most = 4000
	return out[max(0, len(out)-most):]
}
