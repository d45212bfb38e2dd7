package page

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// query has the parameters of a request.
type query struct {
	// Range is the length of the timeline: 5m, 1h or all.
	Range string
	// Asks requests a preview with Default as the default revision. Empty means no default revision.
	Asks    bool
	Default string
	// Name, Revision and Status select rows. Empty selects all rows.
	Name, Revision string
	Status         status
}

// maxName is the maximum length of a name to search for.
const maxName = 253

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
	q.Name, q.Revision, q.Status = values.Get("name"), values.Get("revision"), status(values.Get("state"))
	switch {
	case len(q.Name) > maxName:
		return q, fmt.Errorf("name=%.40q has more than %d characters", q.Name, maxName)
	case !revisionForm.MatchString(q.Revision):
		return q, fmt.Errorf("revision=%.80q is not a valid revision", q.Revision)
	case q.Status != "" && !slices.Contains(statuses, q.Status):
		return q, fmt.Errorf("state=%.40q: give one of %q", q.Status, statuses)
	}
	return q, nil
}

// Filters reports whether the query selects rows.
func (q query) Filters() bool { return q != q.unfiltered() }

func (q query) unfiltered() query {
	q.Name, q.Revision, q.Status = "", "", ""
	return q
}

// of returns the query for the rows with a state.
func (q query) of(s status) query {
	q.Status = s
	return q
}

// selects reports whether the query selects a row. A name is a part of the name of the election or of its holder.
func (q query) selects(r row) bool {
	contains := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(q.Name)) }
	return (q.Status == "" || q.Status == r.Status) && (q.Revision == "" || q.Revision == r.Revision) &&
		(contains(r.Process.ElectionID) || contains(r.Name) || contains(r.Holder))
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
	for name, value := range map[string]string{"name": q.Name, "revision": q.Revision, "state": string(q.Status)} {
		if value != "" {
			values.Set(name, value)
		}
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
