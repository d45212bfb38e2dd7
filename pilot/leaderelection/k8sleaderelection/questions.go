package k8sleaderelection

import (
	"sync"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// questions has the calls of KeyComparison and DefaultRevision. Their results are inputs of a step, but they are functions of the
// caller and may block. So another goroutine calls them, and the loop uses the last results.
type questions struct {
	mu      sync.Mutex
	calling bool   // the goroutine exists
	compare bool   // KeyComparison has to be called with key
	refresh bool   // DefaultRevision has to be called
	key     string // of the holder

	compared string // key of the last result of KeyComparison
	beats    bool   // that result
}

// ask makes the goroutine call KeyComparison with the key of a record that has a holder and, with refresh, DefaultRevision. It
// returns the last result for the key, or false.
func (l *loop) ask(r core.Record, refresh bool) (beats bool) {
	q := &l.questions
	q.mu.Lock()
	defer q.mu.Unlock()
	q.compare = l.core.External && r.Holder != ""
	q.refresh = q.refresh || refresh
	q.key = r.Key
	if !q.calling && (q.compare || q.refresh) {
		q.calling = true
		l.le.hooks.Go(l.answer)
	}
	return q.compare && q.beats && q.compared == q.key
}

// answer calls the functions until there is no question. A new result of KeyComparison and a refresh cause a pass. If this candidate
// does not outrank the holder any more, the next pass uses that. If a function calls runtime.Goexit, its question has no result, and
// another goroutine answers the next.
func (l *loop) answer() {
	complete := false
	defer func() {
		if !complete {
			l.le.hooks.Go(l.answer)
		}
	}()
	for key, compare, refresh := l.questions.next(); compare || refresh; key, compare, refresh = l.questions.next() {
		rose := compare && l.questions.answered(key, l.le.config.KeyComparison(key))
		switch {
		case refresh:
			l.post(l.refreshed())
		case rose:
			l.tick()
		}
	}
	complete = true
}

// refreshed returns an event with the default revision, or a tick if it is not synced.
func (l *loop) refreshed() *event {
	ev := &event{}
	if f := l.le.config.DefaultRevision; f != nil {
		if d := f(); d.Synced {
			ev.in.Kind = core.DefaultChanged
			ev.in.Default = d
		}
	}
	return ev
}

// next returns and removes the questions. Without a question, the goroutine ends.
func (q *questions) next() (key string, compare, refresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, compare, refresh = q.key, q.compare, q.refresh
	q.compare = false
	q.refresh = false
	q.calling = compare || refresh
	return key, compare, refresh
}

// answered stores a result of KeyComparison. It reports whether the candidate outranks a holder with the key, and did not before.
func (q *questions) answered(key string, beats bool) (rose bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rose = beats && !(q.beats && q.compared == key)
	q.compared = key
	q.beats = beats
	return rose
}
