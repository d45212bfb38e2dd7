package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	root, work, excuses string
	// table is all rooms, rooms those that are tried.
	table, rooms []room
	n, from      int
	seed         uint64
	budget       time.Duration
	workers      int
	// own: only the tests of the room's own packages and of those below them judge.
	again, only, own bool
	// known: what earlier runs have left is written into the page, and nothing tried.
	known bool
	page  string
	out   io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parseOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		var sound bool
		if sound, err = o.run(ctx); err == nil && sound {
			return
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	os.Exit(1)
}

func parseOptions(args []string) (options, error) {
	o := options{out: os.Stdout}
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	names := flags.String("rooms", "", "the rooms, with commas; empty: all")
	flags.StringVar(&o.root, "root", ".", "the module's root")
	flags.IntVar(&o.n, "n", 0, "try so many mutants of each room, drawn by the seed; 0: all")
	flags.IntVar(&o.from, "from", 0, "leave out the mutants before this number, which -list prints")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what the draw depends on")
	flags.DurationVar(&o.budget, "budget", 0, "for each room; 0: what the table of rooms says. What is left is tried by the next run")
	flags.IntVar(&o.workers, "workers", 2, "how many tests run at once")
	flags.BoolVar(&o.again, "again", false, "after a change: believe that what was killed stays so, try the rest again; with -n, of the earlier draw")
	flags.BoolVar(&o.own, "own", false, "let only the tests of the room's own packages judge: quick, and what survives is tried by all tests in the next run without it")
	flags.BoolVar(&o.only, "list", false, "list the mutants and try none")
	flags.StringVar(&o.page, "page", "", "write the rooms' results into this file, which keeps what it says of others")
	flags.BoolVar(&o.known, "known", false, "with -page: try none, write what earlier runs have left")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.table, o.rooms = rooms, rooms
	if *names != "" {
		o.rooms = nil
		for _, name := range strings.Split(*names, ",") {
			i := slices.IndexFunc(rooms, func(r room) bool { return r.name == name })
			if i < 0 {
				return o, fmt.Errorf("there is no room %q; there are %s", name, strings.Join(roomNames(rooms), ", "))
			}
			o.rooms = append(o.rooms, rooms[i])
		}
	}
	root, err := filepath.Abs(o.root)
	o.root = root
	o.work = filepath.Join(root, ".cache", "mutants")
	o.excuses = filepath.Join(root, "tests", "mutants", "equivalent.txt")
	return o, err
}

func roomNames(rooms []room) []string {
	names := make([]string, 0, len(rooms))
	for _, r := range rooms {
		names = append(names, r.name)
	}
	return names
}

// run tries the rooms one after the other. It reports whether every survivor has a
// reason and every reason a survivor.
func (o options) run(ctx context.Context) (bool, error) {
	excused, err := readExcuses(o.excuses)
	if err != nil {
		return false, err
	}
	if o.known {
		return true, o.writePage(excused)
	}
	var tallies []*tally
	for _, r := range o.rooms {
		t, err := o.room(ctx, r, excused)
		if err != nil {
			return false, fmt.Errorf("room %s: %w", r.name, err)
		}
		if t != nil {
			tallies = append(tallies, t)
		}
	}
	sound := o.only || report(o.out, tallies)
	if o.page != "" {
		return sound, o.writePage(excused)
	}
	return sound, nil
}

// room plants the mutants of one room, and tries them.
func (o options) room(ctx context.Context, r room, excused excuses) (*tally, error) {
	p, err := plant(ctx, o.root, o.work, r)
	if err != nil {
		return nil, err
	}
	if o.only {
		for _, m := range p.mutants {
			fmt.Fprintf(o.out, "%s\n\t%s, %s=%d\n", m.key(), m.position(), envMutant, m.id)
		}
		return nil, nil
	}
	known, err := readState(o.work, r.name)
	if err != nil {
		return nil, err
	}
	chosen := o.choose(p.mutants)
	if o.again && o.n > 0 {
		chosen = known.tried(p.mutants)
	}
	known = known.after(p, o.again)
	budget := o.budget
	if budget == 0 {
		budget = r.budget
	}
	fmt.Fprintf(o.out, "%s: %d mutants, %d known, for at most %v\n", r.name, len(p.mutants), len(known.Results), budget)
	within, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	defer func() {
		if err := p.clusters.end(); err != nil {
			fmt.Fprintln(o.out, err)
		}
	}()
	passes := r.passes()
	if o.own {
		passes = 1
	}
	for pass := 1; pass <= passes; pass++ {
		err := o.pass(within, p, &known, chosen, pass)
		if err := known.write(o.work, r.name); err != nil {
			return nil, err
		}
		if within.Err() != nil && ctx.Err() == nil {
			break // the budget is spent
		}
		if err != nil {
			return nil, err
		}
	}
	return count(r, p, known, excused), nil
}

// choose draws the mutants to try.
func (o options) choose(mutants []*mutant) []*mutant {
	mutants = slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return m.id < o.from })
	if o.n <= 0 || o.n >= len(mutants) {
		return mutants
	}
	fmt.Fprintf(o.out, "  %d drawn with -seed=%d\n", o.n, o.seed)
	chosen := slices.Clone(mutants)
	rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:o.n]
	inOrder(chosen)
	return chosen
}

// tried are those of the mutants that an earlier run has tried.
func (s state) tried(mutants []*mutant) []*mutant {
	all := s.all()
	return slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool {
		_, tried := all[m.key()]
		return !tried
	})
}

// after is what is still known once a room was built anew.
func (s state) after(p *planted, again bool) state {
	next := state{
		Sum: p.sum, Mutants: len(p.mutants), Results: map[string]result{}, Earlier: map[string]result{}, Tests: map[string]seen{},
	}
	if s.Sum == p.sum && s.Tests != nil {
		next.Tests = s.Tests
	}
	all := s.all()
	for _, m := range p.mutants {
		r, tried := s.Results[m.key()]
		if tried && (s.Sum == p.sum && !again || again && r.killed()) {
			next.Results[m.key()] = r
		} else if r, tried := all[m.key()]; tried && (again || s.Sum == p.sum) {
			next.Earlier[m.key()] = r
		}
	}
	return next
}
