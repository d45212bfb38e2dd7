package debug

import (
	"fmt"
	"net/url"
	"regexp"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// query is what a reader asked for.
type query struct {
	// Range is 5m, 1h or all: how much of the past the timeline shows.
	Range string
	// Asks: what if Default were the default revision, empty: if there were none.
	Asks    bool
	Default string
}

var ranges = []struct {
	name, text string
	length     time.Duration
}{
	{"5m", "5 min", 5 * time.Minute},
	{"1h", "1 hour", time.Hour},
	{"all", "all", 0},
}

// revisionForm is what a revision can look like: it is the value of a label.
var revisionForm = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)

func parse(values url.Values) (query, error) {
	q := query{Range: ranges[0].name}
	if values.Has("range") {
		q.Range = values.Get("range")
		if _, ok := lengthOf(q.Range); !ok {
			return q, fmt.Errorf("range=%.40q: give 5m, 1h or all", q.Range)
		}
	}
	q.Asks, q.Default = values.Has("default"), values.Get("default")
	if !revisionForm.MatchString(q.Default) {
		return q, fmt.Errorf("default=%.80q is no name of a revision: give letters, digits, '-', '_' and '.', at most 63", q.Default)
	}
	return q, nil
}

func lengthOf(name string) (time.Duration, bool) {
	for _, r := range ranges {
		if r.name == name {
			return r.length, true
		}
	}
	return 0, false
}

// link is the query as a relative address.
func (q query) link() string {
	values := url.Values{}
	if q.Range != ranges[0].name {
		values.Set("range", q.Range)
	}
	if q.Asks {
		values.Set("default", q.Default)
	}
	return "?" + values.Encode()
}

func (q query) within(r string) query {
	q.Range = r
	return q
}

func (q query) asking(asks bool, revision string) query {
	q.Asks, q.Default = asks, revision
	return q
}

// steps is in how many the timeline moves from end to end.
const steps = 300

// span is what the timeline of a frame shows.
func (q query) span(f *frame) span {
	length, _ := lengthOf(q.Range)
	if length == 0 {
		length = f.at.Sub(f.history.begin(f.at))
	}
	// It moves on by steps that one can see, so that most frames leave it as it is.
	step := max(time.Second, (length / steps).Truncate(time.Second))
	to := f.at.Truncate(step)
	if to.Before(f.at) {
		to = to.Add(step)
	}
	return span{from: to.Add(-length), to: to}
}

func (q query) revision() k8sleaderelection.DefaultRevision {
	return k8sleaderelection.DefaultRevision{Revision: q.Default, Synced: true}
}
