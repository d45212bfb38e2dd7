package k8sresourcelock

import (
	"context"
	"errors"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// resumeSeparator stands between where the watches of the two objects resume from. Nobody else
// takes that apart.
const resumeSeparator = "+"

var errNotWatchable = errors.New("one of the two locks cannot be watched")

// sight is one piece of news from the watch of one object.
type sight struct {
	half   core.Half
	up     bool
	ended  bool
	snap   Snapshot
	resume string
	err    error
}

// Watch implements Watchable. It is up when both objects are watched, and ends when
// one of the watches does. Until the other object was read or seen, a change of one is
// not shown: whoever starts from "" Reads as well.
func (l *MultiLock) Watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (string, error) {
	primary, ok := l.Primary.(Watchable)
	secondary, ok2 := l.Secondary.(Watchable)
	if !ok || !ok2 {
		return "", errNotWatchable
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	w := pairWatch{lock: l, up: up, seen: seen, news: make(chan sight)}
	w.resume[0], w.resume[1], _ = strings.Cut(from, resumeSeparator)
	for i, half := range []Watchable{primary, secondary} {
		go w.follow(both, half, core.Half(i), w.resume[i])
	}
	err := w.run(ctx, cancel)
	if w.resume[0] == "" || w.resume[1] == "" {
		return "", err
	}
	return w.resume[0] + resumeSeparator + w.resume[1], err
}

// pairWatch merges two watches into calls from one goroutine.
type pairWatch struct {
	lock   *MultiLock
	up     func()
	seen   func(Snapshot)
	news   chan sight
	resume [2]string
}

func (w *pairWatch) follow(ctx context.Context, half Watchable, h core.Half, from string) {
	resume, err := half.Watch(ctx, from,
		func() { w.news <- sight{up: true} },
		func(s Snapshot) { w.news <- sight{half: h, snap: s} })
	w.news <- sight{half: h, ended: true, resume: resume, err: err}
}

// run hands on what comes until both watches have ended. What one still brings while
// the other has ended is not dropped: its watch will resume after it.
func (w *pairWatch) run(ctx context.Context, cancel context.CancelFunc) error {
	var (
		errs []error
		ups  int
		held *Snapshot // the newest of before both were up
	)
	for left := 2; left > 0; {
		news := <-w.news // bounded: both watches end with ctx
		switch {
		case news.ended:
			w.resume[news.half] = news.resume
			errs = append(errs, news.err)
			cancel()
			left--
		case ctx.Err() != nil:
		case news.up:
			if ups++; ups < 2 {
				continue
			}
			w.up()
			if held != nil {
				w.seen(*held)
			}
		default:
			pair, ok, err := w.lock.mem.seen(news.half, news.snap, w.lock.Identity())
			if err != nil {
				errs = append(errs, err)
				cancel()
			}
			// An elector that heard of one object again and again would not poll for the
			// other, whose watch may be hanging.
			switch {
			case ok && ups == 2:
				w.seen(pair)
			case ok:
				held = &pair
			}
		}
	}
	return errors.Join(errs...)
}
