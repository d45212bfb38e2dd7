package k8sleaderelection_test

import (
	"context"
	"encoding/json"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// moveBugs are ways to get the merging of two locks wrong.
var moveBugs = map[string]func(*k8sresourcelock.MultiLock) lockOf{
	"held once the primary is written": func(l *k8sresourcelock.MultiLock) lockOf {
		l.Secondary = hopeful{l.Secondary.(locktest.Locker)}
		return l
	},
	"the loss of one object goes unseen": showing(func(_ string, s k8sresourcelock.Snapshot, _ *k8sresourcelock.Pair) k8sresourcelock.Snapshot {
		s.Parts[0].Stands, s.Parts[1].Stands = true, true
		return s
	}),
	"the primary alone counts": showing(func(_ string, s k8sresourcelock.Snapshot, p *k8sresourcelock.Pair) k8sresourcelock.Snapshot {
		return shownAs(s, p.Primary)
	}),
	"the secondary alone counts": showing(func(_ string, s k8sresourcelock.Snapshot, p *k8sresourcelock.Pair) k8sresourcelock.Snapshot {
		return shownAs(s, p.Secondary)
	}),
	"either being free is enough": showing(func(_ string, s k8sresourcelock.Snapshot, p *k8sresourcelock.Pair) k8sresourcelock.Snapshot {
		for _, half := range []k8sresourcelock.Snapshot{p.Primary, p.Secondary} {
			if half.Raw != nil && half.Unreadable == nil && half.Record.HolderIdentity == "" {
				return shownAs(s, half)
			}
		}
		return s
	}),
	"a nomination on either is enough": showing(func(_ string, s k8sresourcelock.Snapshot, p *k8sresourcelock.Pair) k8sresourcelock.Snapshot {
		for _, half := range []k8sresourcelock.Snapshot{p.Primary, p.Secondary} {
			if n := half.Notes[k8sresourcelock.NominatedAnnotation]; n != "" && n == half.Record.HolderIdentity {
				return shownAs(s, half)
			}
		}
		return s
	}),
}

// shownAs is the pair with one object's word in place of that of both.
func shownAs(s, half k8sresourcelock.Snapshot) k8sresourcelock.Snapshot {
	s.Record, s.Notes, s.Unreadable = half.Record, half.Notes, half.Unreadable
	if half.Raw == nil {
		s.Raw = nil
	} else if s.Raw == nil {
		s.Raw = half.Raw
	}
	s.Parts[0].Stands, s.Parts[1].Stands = true, true
	return s
}

// showing makes a bug of what is shown.
func showing(show func(self string, s k8sresourcelock.Snapshot, p *k8sresourcelock.Pair) k8sresourcelock.Snapshot) func(*k8sresourcelock.MultiLock) lockOf {
	return func(l *k8sresourcelock.MultiLock) lockOf {
		return wrong{l, func(s k8sresourcelock.Snapshot) k8sresourcelock.Snapshot {
			pair, ok := s.Object.(*k8sresourcelock.Pair)
			if !ok {
				return s
			}
			return show(l.Identity(), s, pair)
		}}
	}
}

// wrong is a MultiLock that shows something else.
type wrong struct {
	*k8sresourcelock.MultiLock
	show func(k8sresourcelock.Snapshot) k8sresourcelock.Snapshot
}

func (w wrong) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	s, err := w.MultiLock.Read(ctx)
	return w.show(s), err
}

func (w wrong) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	s, err := w.MultiLock.Write(ctx, base, r, notes)
	return w.show(s), err
}

func (w wrong) Subscribe(ctx context.Context, wake func()) k8sresourcelock.Subscription {
	return wrongWatch{w.MultiLock.Subscribe(ctx, wake), w.show}
}

// wrongWatch shows what a wrong lock does.
type wrongWatch struct {
	k8sresourcelock.Subscription
	show func(k8sresourcelock.Snapshot) k8sresourcelock.Snapshot
}

func (w wrongWatch) Next() []k8sresourcelock.News {
	news := w.Subscription.Next()
	for i := range news {
		if news[i].Kind == k8sresourcelock.Changed {
			news[i].Snapshot = w.show(news[i].Snapshot)
		}
	}
	return news
}

// hopeful is a secondary whose failed writes count as done.
type hopeful struct{ locktest.Locker }

func (h hopeful) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	s, err := h.Locker.Write(ctx, base, r, notes)
	if err == nil {
		return s, nil
	}
	s = base
	s.Exists, s.Record, s.Notes = true, r, notes
	s.Raw, _ = json.Marshal(r)
	if s.UID == "" {
		s.UID, s.ResourceVersion = "hoped-for", "1"
	}
	return s, nil
}
