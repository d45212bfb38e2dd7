package page

import (
	"fmt"
	"net/url"
	"regexp"
	"time"
)

// query has the parameters of a request.
type query struct {
	// Range is the length of the timeline: 5m, 1h or all.
	Range string
	// Asks requests a preview with Default as the default revision. Empty means no default revision.
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

// revisionForm matches revisions, which are label values.
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
		return q, fmt.Errorf("default=%.80q is not a valid revision: use letters, digits, '-', '_' and '.', at most 63", q.Default)
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

// link returns the query as a relative URL.
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

// steps is the number of visible steps of the timeline.
const steps = 300

// span returns the period of the timeline.
func (q query) span(f *frame) span {
	length, _ := lengthOf(q.Range)
	if length == 0 {
		length = f.at.Sub(f.history.begin(f.at))
	}
	// The timeline moves in visible steps, so that it is equal in most frames.
	step := max(time.Second, (length / steps).Truncate(time.Second))
	to := f.at.Truncate(step)
	if to.Before(f.at) {
		to = to.Add(step)
	}
	return span{from: to.Add(-length), to: to}
}
