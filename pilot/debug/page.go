package debug

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"go.uber.org/atomic"
)

// pause is how long at least lies between two frames.
const pause = 50 * time.Millisecond

// Page is the elections page.
type Page struct {
	config  Config
	hosts   hosts
	streams chan struct{}
	past    chan past
	newest  atomic.Pointer[frame]
	running atomic.Pointer[run]
	ended   chan struct{} // closed when Run returns
}

// run is the call of Run that streams end with.
type run struct{ ctx context.Context }

// frame is all there is to show at one instant. It does not change, but for what was already
// rendered of it.
type frame struct {
	at      time.Time
	state   State
	history history
	// deadlines are the ends of covers, in the order of the elections.
	deadlines []time.Time
	// next is closed when there is a newer frame.
	next     chan struct{}
	rendered rendered
}

type past struct {
	of      name
	changes []Change
}

// New makes a page and starts nothing.
func New(config Config) (*Page, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	return &Page{
		config: config, hosts: newHosts(config.Address, config.Hosts),
		streams: make(chan struct{}, config.MaxStreams), past: make(chan past), ended: make(chan struct{}),
	}, nil
}

// errAgain is the answer to a second Run.
var errAgain = errors.New("debug: the page runs already")

// errEnded is the answer to who has something for a page that has ended.
var errEnded = errors.New("debug: the page has ended")

// Run looks at the elections and publishes what it sees until ctx ends. It returns when all
// streams have ended, which they do at once.
func (p *Page) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(nil, &run{ctx}) {
		return errAgain
	}
	defer close(p.ended)
	h := newHistory(p.config.MaxHistory)
	idle := time.NewTimer(p.config.Idle)
	defer idle.Stop()
	p.publish(p.look(h))
	for ctx.Err() == nil {
		forced := false
		select {
		case <-ctx.Done():
			continue
		case <-idle.C:
			forced = true
		case <-p.config.Changed:
		case past := <-p.past:
			h.before(past.of, past.changes)
			forced = true
		}
		if f := p.look(h); forced || f.differs(p.newest.Load()) {
			p.publish(f)
			idle.Reset(p.config.Idle)
		}
		wait(ctx, pause)
	}
	for range cap(p.streams) { // when all places are taken, no stream has one
		p.streams <- struct{}{}
	}
	return nil
}

// Record tells the page who led an election before it began to look, as far as that is known
// from elsewhere. What it has seen by itself stays. It returns when Run has taken it in, and with
// an error when Run has returned.
func (p *Page) Record(ctx context.Context, of Election, changes []Change) error {
	select {
	case p.past <- past{of.name(), changes}:
		return nil
	case <-p.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look makes a frame of what is there now.
func (p *Page) look(h *history) *frame {
	state, now := p.config.Source(), p.config.Now()
	h.observe(now, state)
	return &frame{at: now, state: state, history: h.picture(), next: make(chan struct{}), deadlines: deadlines(now, state, p.newest.Load())}
}

// sameCover is how far two looks at one cover's end may lie apart: the first is kept.
const sameCover = 300 * time.Millisecond

// deadlines are the ends of covers. One that old knows already keeps its end to the instant, as long as nobody renews.
func deadlines(now time.Time, s State, old *frame) (all []time.Time) {
	for i, e := range s.Elections {
		end := now.Add(e.CoverLeft)
		if old != nil && i < len(old.deadlines) && old.state.Elections[i].name() == e.name() && end.Sub(old.deadlines[i]).Abs() <= sameCover {
			end = old.deadlines[i]
		}
		all = append(all, end)
	}
	return all
}

// publish replaces the newest frame, and wakes who waits for it.
func (p *Page) publish(f *frame) {
	if old := p.newest.Swap(f); old != nil {
		close(old.next)
	}
}

// differs reports whether anybody would see a difference, other than that time has passed.
func (f *frame) differs(old *frame) bool {
	a, b := f.state, old.state
	if len(a.Elections) != len(b.Elections) {
		return true
	}
	for i := range a.Elections {
		if a.Elections[i].Leading && !f.deadlines[i].Equal(old.deadlines[i]) {
			return true
		}
	}
	a.Elections, b.Elections = withoutCover(a.Elections), withoutCover(b.Elections)
	return !reflect.DeepEqual(a, b)
}

func withoutCover(elections []Election) []Election {
	elections = slices.Clone(elections)
	for i := range elections {
		elections[i].CoverLeft = 0
	}
	return elections
}

// wait returns after d, or when ctx has ended.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
