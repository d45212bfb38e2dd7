package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const (
	handsOver = "v1 a 3 handover"
	holdKey   = "incumbent.dev/hold"
	holdOfAnn = `{"holder":"a","transitions":3,"seconds":60,"requester":"ann","reason":"pause","note":"backup"}`
)

func TestOf_CoordinatedNames(t *testing.T) {
	l := lease(t, "e", "a.e", "incumbent.dev/strategy", "x", "incumbent.dev/preferred-holder", "b.e", "incumbent.dev/handover-request",
		`{"identity":"c.e","reason":"operator","requester":"ann","holder":"a.e","transitions":3,"seconds":15}`)
	e := Of(l)
	if e.Holder != "a" || e.Preferred != "b" || e.Request == nil || e.Request.Identity != "c" || e.Strategy != "x" {
		t.Errorf("got %+v", e)
	}
	if e.Identity("b") != "b.e" || e.Identity("") != "" {
		t.Errorf("identities %q and %q", e.Identity("b"), e.Identity(""))
	}
	if left := Of(lease(t, "e", "a", "incumbent.dev/strategy", "x")); left.Holder != "a" || left.Identity("b") != "b" {
		t.Errorf("holder not coordinated: %+v", left)
	}
	if other := Of(lease(t, "e", "a.e")); other.Holder != "a.e" || other.Identity("b") != "b" {
		t.Errorf("no strategy: %+v", other)
	}
}

func TestOf_Fields(t *testing.T) {
	e := Of(configMap(t, "e", recordOf("a", "stable", 3), "incumbent.dev/handover-request",
		`{"identity":"b","key":"canary","reason":"operator","requester":"ann","note":"backup","holder":"a","transitions":3,"seconds":15}`))
	if want := (record.Request{Identity: "b", Key: "canary", Reason: "operator", Requester: "ann", Note: "backup", Holder: "a", Transitions: 3, Seconds: 15}); e.Request == nil || *e.Request != want {
		t.Errorf("%+v, want %+v", e.Request, want)
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if !e.Since.Equal(since) || !e.Renewed.Equal(since.Add(time.Minute)) || e.Version != "7" {
		t.Errorf("%+v", e)
	}
}

// Values of other processes have a limited length.
func TestOf_LongValues(t *testing.T) {
	long := strings.Repeat("ä", 500) // a record with a longer holder is unreadable
	request := fmt.Sprintf(`{"identity":"b","key":"stable","holder":%q,"reason":"operator","seconds":15,"requester":%[1]q,"note":%[1]q,"refused":%[1]q,"transitions":3}`, long)
	hold := fmt.Sprintf(`{"holder":%q,"transitions":3,"seconds":60,"requester":%[1]q,"reason":%[1]q,"note":%[1]q}`, long)
	lock := configMap(t, "istio-leader", recordOf(long, long, 3), markerKey, "v1 "+long+" 2", "incumbent.dev/handover-request", request,
		"incumbent.dev/hold", hold)
	lock.finalizers = []string{long}
	for name, l := range map[string]Lock{
		"annotations": lock, "record": configMap(t, "istio-leader", `{"renewTime":"`+long+`"}`),
		"strategy": lease(t, "istio-leader", "a", "incumbent.dev/strategy", long, "incumbent.dev/preferred-holder", long),
	} {
		e := Elections([]Lock{l}, []Candidate{{Namespace: l.Namespace, Election: l.Name, Identity: "b"}}, nil, k8sleaderelection.DefaultRevision{})[0]
		if text, err := json.Marshal(e); err != nil || len(text) > 24*maxText || !utf8.Valid(text) {
			t.Errorf("%s: %d bytes, %v: %s", name, len(text), err, text)
		}
		if name == "annotations" && (e.Request == nil || e.Hold == nil || e.Former == "") || name == "strategy" && (e.Strategy == "" || e.Preferred == "") {
			t.Errorf("values are missing: %+v", e)
		}
	}
}

func TestOf_Program(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	const wrote = `{"f:metadata":{"f:annotations":{"f:control-plane.alpha.kubernetes.io/leader":{}}},"f:spec":{"f:renewTime":{}}}`
	by := func(manager string, at *metav1.Time, fields string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: manager, Time: at, FieldsV1: metav1.NewFieldsV1(fields)}}
	}
	istiod := by("pilot-discovery", at(1), wrote)
	for name, c := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		marker  string
		want    string
	}{
		"incumbent":            {istiod, handsOver, "incumbent"},
		"old marker":           {nil, "v1 a 2 handover", ""},
		"istiod":               {istiod, "", "istiod"},
		"newer record":         {append(istiod, by("kubectl", at(2), wrote)...), "", ""},
		"older record":         {append(istiod, by("kubectl", at(0), wrote)...), "", "istiod"},
		"newer annotation":     {append(istiod, by("kubectl", at(2), `{"f:metadata":{"f:annotations":{"f:team":{}}}}`)...), "", "istiod"},
		"entry without time":   {append(istiod, by("kubectl", nil, wrote)...), "", "istiod"},
		"entry without fields": {append(istiod, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: at(2)}), "", "istiod"},
		"another program":      {by("pilot", at(1), wrote), "", ""},
	} {
		holder, seconds, transitions := "a", int32(30), int32(3)
		notes := map[string]string{recordKey: recordOf("a", "stable", 3), markerKey: c.marker}
		meta := metav1.ObjectMeta{Namespace: "istio-system", Name: "e", Annotations: notes, ManagedFields: c.entries}
		ofConfigMap, _ := FromConfigMap(&meta)
		ofLease, _ := FromLease(&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
		}})
		for _, l := range []Lock{ofConfigMap, ofLease} {
			if e := Of(l); e.Program != c.want || e.Holder != "a" {
				t.Errorf("%s: %s: program %q, want %q (%+v)", name, l.Kind, e.Program, c.want, e)
			}
		}
	}
}

func TestElections_Sorted(t *testing.T) {
	in := func(l Lock, namespace string) Lock {
		l.Namespace = namespace
		return l
	}
	var got []string
	for _, e := range Elections([]Lock{
		in(configMap(t, "a", recordOf("", "", 3)), "two"), in(lease(t, "b", "a"), "one"), in(lease(t, "a", "a"), "one"), in(configMap(t, "b", recordOf("", "", 3)), "one"),
	}, nil, nil, k8sleaderelection.DefaultRevision{}) {
		got = append(got, e.Namespace+"/"+e.Name+" "+e.Lock)
	}
	if want := []string{"one/a Lease", "one/b ConfigMap", "one/b Lease", "two/a ConfigMap"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestElections_TwoLocksOfAName(t *testing.T) {
	free := func(notes ...string) Lock { return configMap(t, "e", recordOf("", "", 3), notes...) }
	const both = "the ConfigMap has the holder b and the Lease has the holder a"
	for name, c := range map[string]struct {
		one, other Lock
		want       string // kind, holder, and beginning of the problem
	}{
		"one is free":        {lease(t, "e", "a"), free(), "ConfigMap  []; Lease a []"},
		"the other is free":  {lease(t, "e", ""), configMap(t, "e", recordOf("b", "stable", 3)), "ConfigMap b []; Lease  []"},
		"both are held":      {lease(t, "e", "a"), configMap(t, "e", recordOf("b", "stable", 3)), "ConfigMap b [" + both + "]; Lease a [" + both + "]"},
		"both by one holder": {lease(t, "e", "a"), configMap(t, "e", recordOf("a", "stable", 3)), "ConfigMap a []; Lease a []"},
	} {
		for _, locks := range [][]Lock{{c.one, c.other}, {c.other, c.one}} {
			var got []string
			for _, e := range Elections(locks, nil, nil, k8sleaderelection.DefaultRevision{}) {
				for i, problem := range e.Problems {
					e.Problems[i], _, _ = strings.Cut(problem, ", so")
				}
				got = append(got, fmt.Sprint(e.Lock, " ", e.Holder, " ", e.Problems))
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("%s: %s, want %s", name, text, c.want)
			}
		}
	}
}

// permutations returns all orders of a slice.
func permutations[T any](all []T) (found [][]T) {
	if len(all) == 0 {
		return [][]T{nil}
	}
	for i := range all {
		for _, rest := range permutations(slices.Concat(all[:i], all[i+1:])) {
			found = append(found, append([]T{all[i]}, rest...))
		}
	}
	return found
}

func TestElections_CandidateOrder(t *testing.T) {
	candidate := func(identity, key, is string) Candidate {
		return Candidate{
			Namespace: "istio-system", Election: "e", Identity: identity, Key: key,
			Warm: strings.Contains(is, "warm"), Fit: !strings.Contains(is, "unfit"), Late: strings.Contains(is, "late"),
		}
	}
	ranked, unranked := configMap(t, "e", recordOf("x", "beta", 3)), configMap(t, "e", recordOf("x", "", 3))
	free, own := configMap(t, "e", recordOf("", "", 3)), configMap(t, "e-stable", recordOf("", "", 3))
	synced := func(revision string) k8sleaderelection.DefaultRevision {
		return k8sleaderelection.DefaultRevision{Synced: true, Revision: revision}
	}
	for name, c := range map[string]struct {
		lock Lock
		d    k8sleaderelection.DefaultRevision
		all  []Candidate // in the expected order
	}{
		"by rank":                 {ranked, synced("canary"), []Candidate{candidate("d", "canary", "unfit"), candidate("c", "^canary", "warm"), candidate("b", "stable", "warm"), candidate("a", "^stable", "warm")}},
		"by rank, while free":     {free, synced("canary"), []Candidate{candidate("b", "canary", ""), candidate("a", "stable", "warm")}},
		"without rank":            {unranked, synced("canary"), []Candidate{candidate("a", "^stable", "warm"), candidate("b", "stable", "warm"), candidate("c", "canary", "warm")}},
		"each revision its own":   {own, synced("stable"), []Candidate{candidate("a", "^stable", "warm"), candidate("b", "stable", "warm"), candidate("c", "", "warm")}},
		"by ability":              {ranked, synced(""), []Candidate{candidate("d", "stable", ""), candidate("c", "stable", "late, warm"), candidate("a", "stable", "unfit"), candidate("b", "stable", "late")}},
		"by warmth":               {ranked, synced(""), []Candidate{candidate("c", "stable", "warm"), candidate("a", "stable", ""), candidate("b", "stable", "")}},
		"the default not known":   {ranked, k8sleaderelection.DefaultRevision{Revision: "canary"}, []Candidate{candidate("a", "stable", ""), candidate("b", "canary", "")}},
		"no default, and no rank": {ranked, synced(""), []Candidate{candidate("a", "stable", ""), candidate("b", "", "")}},
	} {
		for _, order := range permutations(c.all) {
			for i := range order {
				order[i].Election = c.lock.Name
			}
			got := Elections([]Lock{c.lock}, order, nil, c.d)[0].Candidates
			for i := range c.all {
				if got[i].Identity != c.all[i].Identity {
					t.Fatalf("%s: %+v", name, got)
				}
			}
		}
	}
}

func TestOf_Liveness(t *testing.T) {
	written := time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC) // recordOf's renewTime; the lease is 30 s
	at := func(l Lock, renewed, read int, stamped bool) Lock {
		l.Snapshot.Record.RenewTime.Time = written.Add(time.Duration(renewed) * time.Second)
		l.Snapshot.Record.AcquireTime.Time = l.Snapshot.Record.RenewTime.Add(-time.Minute)
		l.At = written.Add(time.Duration(read) * time.Second)
		if stamped {
			l.written = written
		}
		return l
	}
	held, free := configMap(t, "e", recordOf("a", "stable", 3), markerKey, handsOver), configMap(t, "e", recordOf("", "", 3))
	for name, c := range map[string]struct {
		lock  Lock
		want  string
		since int // seconds after written
		ahead time.Duration
	}{
		"just renewed":             {at(held, 0, 0, true), "leads", -60, 0},
		"renewed within the lease": {at(held, 0, 30, true), "leads", -60, 0},
		"in the tolerance":         {at(held, 0, 32, true), "unknown (renewed 32s ago)", -60, 0},
		"expired":                  {at(held, 0, 33, true), "expired (renewed 33s ago)", -60, 0},
		"expired long ago":         {at(held, 0, 7200, true), "expired (renewed 120m ago)", -60, 0},
		"holder's clock behind":    {at(held, -600, 10, true), "leads", -60, -10 * time.Minute},
		"holder's clock ahead":     {at(held, 600, 10, true), "leads", -60, 10 * time.Minute},
		"ahead and expired":        {at(held, 600, 120, true), "expired (renewed 2m ago)", -60, 10 * time.Minute},
		"rounded seconds":          {at(held, 1, 10, true), "leads", -59, time.Second},
		"only the holder's clock":  {at(held, 0, 120, false), "unknown (renewed 2m ago)", -60, 0},
		"its clock ahead":          {at(held, 600, 10, false), "leads", 10, 0},
		"free":                     {at(free, 0, 120, true), "free", -60, 0},
	} {
		e := Of(c.lock)
		if got := e.StateText(); got != c.want || e.Ahead != c.ahead || !e.Since.Equal(written.Add(time.Duration(c.since)*time.Second)) || e.Renewed.After(c.lock.At) {
			t.Errorf("%s: %s, since %v, renewed %v, ahead %v", name, got, e.Since, e.Renewed, e.Ahead)
		}
	}
}

func TestFromLease_LastWrite(t *testing.T) {
	entry := func(seconds int64, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: new(metav1.Unix(seconds, 0)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	entries := []metav1.ManagedFieldsEntry{
		entry(1, `{"f:spec":{"f:renewTime":{}}}`), entry(3, `{"f:spec":{"f:renewTime":{}}}`), entry(2, `{"f:spec":{"f:renewTime":{}}}`),
		entry(5, `{"f:metadata":{"f:annotations":{"f:incumbent.dev/hold":{}}}}`), {Time: new(metav1.Unix(9, 0))}, {FieldsV1: metav1.NewFieldsV1(`{"f:renewTime":{}}`)},
	}
	l, _ := FromLease(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: entries}})
	if l.written.Unix() != 3 {
		t.Errorf("written at %v", l.written)
	}
	entries[0] = entry(4, `{"f:metadata":{"f:annotations":{"f:control-plane.alpha.kubernetes.io/leader":{}}}}`)
	c, _ := FromConfigMap(&metav1.ObjectMeta{ManagedFields: entries, Annotations: map[string]string{recordKey: "{"}})
	if c.written.Unix() != 4 {
		t.Errorf("written at %v", c.written)
	}
}

// A record can lack its times, or have times that no clock shows. They are printed in all formats.
func TestOf_TimesOfRecord(t *testing.T) {
	written := time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)
	year := func(y int) time.Time { return time.Date(y, 12, 31, 23, 59, 59, 0, time.FixedZone("", -14*3600)) }
	for name, c := range map[string]struct {
		acquired, renewed, written time.Time
		want                       string // state and Since
	}{
		"no times":            {time.Time{}, time.Time{}, written, "holds -"},
		"never written":       {time.Time{}, time.Time{}, time.Time{}, "unknown (no renewal recorded) -"},
		"no acquireTime":      {time.Time{}, written.Add(-time.Hour), written, "holds -"},
		"year 1":              {year(1), year(1), written, "holds 2026-01-02"},
		"acquired long ago":   {year(1), written.Add(time.Hour), written, "holds 1733-"},
		"year 10000 in UTC":   {year(9999), year(9999), written, "holds -"},
		"renewed in year one": {written, year(1), written, "holds 2026-01-02"},
	} {
		l := configMap(t, "e", recordOf("a", "stable", 3))
		l.Snapshot.Record.AcquireTime.Time = c.acquired
		l.Snapshot.Record.RenewTime.Time = c.renewed
		l.written = c.written
		l.At = written.Add(5 * time.Second)
		e := Of(l)
		since := "-"
		if !e.Since.IsZero() {
			since = e.Since.Format(time.RFC3339)
		}
		if got := e.StateText() + " " + since; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
