package k8sresourcelock

import (
	"context"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// pairWatch is the Subscription of a MultiLock. It is connected while both objects are watched. A change of one
// object is not shown until the other object is known. Therefore a subscriber must also call Read.
type pairWatch struct {
	lock    *MultiLock
	halves  [2]Subscription
	up      [2]bool
	gap     bool
	pending *Snapshot // the newest state from before both watches were connected
}

// Subscribe implements Subscribable. It returns nil if one of the two locks cannot be followed.
func (l *MultiLock) Subscribe(ctx context.Context, wake func()) Subscription {
	p := &pairWatch{lock: l}
	for i, half := range []Interface{l.Primary, l.Secondary} {
		if p.halves[i] = Subscribe(ctx, half, wake); p.halves[i] == nil {
			if i > 0 {
				p.halves[0].End()
			}
			return nil
		}
	}
	return p
}

// Next implements Subscription.
func (p *pairWatch) Next() (events []Event) {
	for i, half := range p.halves {
		for _, e := range half.Next() {
			events = append(events, p.convert(core.Half(i), e)...)
		}
	}
	return events
}

// convert returns the events of the pair for an event of one object.
func (p *pairWatch) convert(h core.Half, e Event) []Event {
	connected := p.up[0] && p.up[1]
	switch e.Kind {
	case WatchConnected:
		p.up[h], p.gap = true, p.gap || e.Gap
		if !p.up[0] || !p.up[1] {
			return nil
		}
		events := []Event{{Kind: WatchConnected, Gap: p.gap}}
		if p.pending != nil {
			events = append(events, Event{Kind: Changed, Snapshot: *p.pending})
		}
		p.gap, p.pending = false, nil
		return events
	case WatchDisconnected:
		if p.up[h] = false; !connected && e.Err == nil {
			return nil
		}
	case Changed:
		pair, ok, err := p.lock.mem.applyEvent(h, e.Snapshot, p.lock.Identity())
		switch {
		case err != nil && connected: // this change was missed
			return []Event{{Kind: WatchDisconnected, Err: err}, {Kind: WatchConnected, Gap: true}}
		case err != nil:
			return []Event{{Kind: WatchDisconnected, Err: err}}
		case !ok:
			return nil
		case !connected:
			// If the elector received changes of one object, it would not poll the other object, whose watch may
			// hang.
			p.pending = &pair
			return nil
		}
		e.Snapshot = pair
	}
	return []Event{e}
}

// StoreRestored implements Subscription. It restarts both watches, because the version of a pair does not show
// which object has gone back.
func (p *pairWatch) StoreRestored(string) {
	for _, half := range p.halves {
		half.StoreRestored("0")
	}
}

// End implements Subscription.
func (p *pairWatch) End() {
	for _, half := range p.halves {
		half.End()
	}
}
