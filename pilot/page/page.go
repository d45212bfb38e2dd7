package page

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/inspect"
)

// pause is the minimum time between two frames.
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

// run has the context of Run, which ends streams.
type run struct{ ctx context.Context }

// frame is the state at one time. It is immutable except for the cache of rendered views.
type frame struct {
	at      time.Time
	state   State
	history history
	// deadlines are the ends of validity, in the order of the elections.
	deadlines []time.Time
	// next is closed when a newer frame exists.
	next chan struct{}
	// mu guards rendered, the cache of views for concurrent streams.
	mu       sync.Mutex
	rendered map[query][]byte
}

type past struct {
	of      name
	changes []Change
}

// New returns a Page and starts nothing.
func New(config Config) *Page {
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	return &Page{
		config: config, hosts: newHosts(config.Address),
		streams: make(chan struct{}, maxStreams), past: make(chan past), ended: make(chan struct{}),
	}
}

var errAgain = errors.New("page is already running")

var errEnded = errors.New("page has ended")

// Run publishes frames until ctx ends. It returns when all streams have ended, which they do immediately.
func (p *Page) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(nil, &run{ctx}) {
		return errAgain
	}
	defer close(p.ended)
	h := newHistory(maxHistory)
	timer := time.NewTimer(idle)
	defer timer.Stop()
	p.publish(p.look(h))
	for ctx.Err() == nil {
		forced := false
		select {
		case <-ctx.Done():
			continue
		case <-timer.C:
			forced = true
		case <-p.config.Changed:
		case past := <-p.past:
			h.before(past.of, past.changes)
			forced = true
		}
		if f := p.look(h); forced || f.differs(p.newest.Load()) {
			p.publish(f)
			timer.Reset(idle)
		}
		_ = apirequest.Pause(ctx, pause)
	}
	for range cap(p.streams) { // all streams have ended when all slots are taken
		p.streams <- struct{}{}
	}
	return nil
}

// Record adds changes of an election from before the first observation. It returns after Run has received them, or an error
// if Run has ended.
func (p *Page) Record(ctx context.Context, of inspect.Election, changes []Change) error {
	select {
	case p.past <- past{nameOf(of), changes}:
		return nil
	case <-p.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look returns a frame of the current state.
func (p *Page) look(h *history) *frame {
	state, now := p.config.Source(), time.Now()
	h.observe(now, state)
	return &frame{
		at: now, state: state, history: h.picture(), next: make(chan struct{}), rendered: map[query][]byte{},
		deadlines: deadlines(state, p.newest.Load()),
	}
}

// sameValidity is the tolerance within which two calculated ends of validity count as equal.
const sameValidity = 300 * time.Millisecond

// deadlines returns the ends of validity. Without a renewal it returns the values of the old frame.
func deadlines(s State, old *frame) (all []time.Time) {
	for i, e := range s.Elections {
		end := e.Process.ValidUntil
		if old != nil && i < len(old.deadlines) && nameOf(old.state.Elections[i]) == nameOf(e) && end.Sub(old.deadlines[i]).Abs() <= sameValidity {
			end = old.deadlines[i]
		}
		all = append(all, end)
	}
	return all
}

// publish replaces the newest frame and wakes the streams.
func (p *Page) publish(f *frame) {
	if old := p.newest.Swap(f); old != nil {
		close(old.next)
	}
}

// differs reports whether the frames differ visibly, other than in time.
func (f *frame) differs(old *frame) bool {
	a, b := f.state, old.state
	if len(a.Elections) != len(b.Elections) {
		return true
	}
	for i := range a.Elections {
		if a.Elections[i].Process.Leading && !f.deadlines[i].Equal(old.deadlines[i]) {
			return true
		}
	}
	a.Elections, b.Elections = visible(a.Elections), visible(b.Elections)
	return !reflect.DeepEqual(a, b)
}

// visible returns the elections without the values that change with each renewal.
func visible(elections []inspect.Election) []inspect.Election {
	elections = slices.Clone(elections)
	for i := range elections {
		e := &elections[i]
		p := *e.Process
		p.Object = nil
		p.HandoverWait = 0
		p.ValidFor = 0
		p.ValidUntil = time.Time{}
		e.Process = &p
		e.Renewed = time.Time{}
		e.Version = ""
	}
	return elections
}
