package k8sresourcelock

import (
	"context"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// pairWatch is the Subscription of a MultiLock. It is up when both objects are watched. Until the
// other object was read or seen, a change of one is not shown: who subscribes Reads as well.
type pairWatch struct {
	lock   *MultiLock
	halves [2]Subscription
	up     [2]bool
	gap    bool
	held   *Snapshot // the newest of before both were up
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
func (p *pairWatch) Next() (news []Event) {
	for i, half := range p.halves {
		for _, n := range half.Next() {
			news = append(news, p.take(core.Half(i), n)...)
		}
	}
	return news
}

// take turns one object's news into news of the pair.
func (p *pairWatch) take(h core.Half, n Event) []Event {
	whole := p.up[0] && p.up[1]
	switch n.Kind {
	case WatchConnected:
		p.up[h], p.gap = true, p.gap || n.Gap
		if !p.up[0] || !p.up[1] {
			return nil
		}
		news := []Event{{Kind: WatchConnected, Gap: p.gap}}
		if p.held != nil {
			news = append(news, Event{Kind: Changed, Snapshot: *p.held})
		}
		p.gap, p.held = false, nil
		return news
	case WatchDisconnected:
		if p.up[h] = false; !whole && n.Err == nil {
			return nil
		}
	case Changed:
		pair, ok, err := p.lock.mem.seen(h, n.Snapshot, p.lock.Identity())
		switch {
		case err != nil && whole: // what could not be taken in was missed
			return []Event{{Kind: WatchDisconnected, Err: err}, {Kind: WatchConnected, Gap: true}}
		case err != nil:
			return []Event{{Kind: WatchDisconnected, Err: err}}
		case !ok:
			return nil
		case !whole:
			// An elector that is shown one object again and again would not poll for the
			// other, whose watch may be hanging.
			p.held = &pair
			return nil
		}
		n.Snapshot = pair
	}
	return []Event{n}
}

// Rewound implements Subscription. Which of the two has gone back a pair's version does not tell.
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
