package inspect

import (
	"fmt"
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	stable := recordOf("a", "stable", 3)
	of := func(record string, notes ...string) *Election {
		e := Of(configMap(t, "e", record, notes...))
		return &e
	}
	request := func(to, requester, more string) *Election {
		return of(stable, "incumbent.dev/handover-request", fmt.Sprintf(
			`{"identity":%q,"key":"canary","reason":"operator","requester":%q,"holder":"a","transitions":3,"seconds":15%s}`, to, requester, more))
	}
	coordinated := func(holder string, transitions int, notes ...string) *Election {
		l := lease(t, "e", holder, append(notes, "incumbent.dev/strategy", "x")...)
		l.Snapshot.Record.LeaderTransitions = transitions
		e := Of(l)
		return &e
	}
	const preferred = "incumbent.dev/preferred-holder"
	free, holds, leads := of(recordOf("", "", 3)), of(stable), of(stable, markerKey, handsOver)
	unfit, hold := of(stable, markerKey, handsOver+" unfit"), of(stable, holdKey, holdOfAnn)
	nominated := of(strings.Replace(recordOf("b", "", 4), "03:05:05", "03:04:05", 1), "incumbent.dev/nominated", "b")
	for name, c := range map[string]struct {
		before, after *Election
		want          string
	}{
		"no lock":                {nil, nil, ""},
		"created":                {nil, leads, "lock created: a leads"},
		"created free":           {nil, free, "lock created: free"},
		"deleted":                {leads, nil, "lock deleted; before: a leads"},
		"renewed":                {holds, of(strings.Replace(stable, "03:05:05", "03:05:06", 1)), ""},
		"settled":                {holds, leads, "a leads"},
		"unfit":                  {leads, unfit, "a became unfit"},
		"no coordinator":         {coordinated("a", 3, markerKey, handsOver), coordinated("a", 3, markerKey, handsOver+" uncoordinated"), "the election runs as without a coordinator: no coordinator named a leader for three lease durations"},
		"coordinator again":      {coordinated("a", 3, markerKey, handsOver+" uncoordinated"), coordinated("a", 3, markerKey, handsOver), "a coordinator chooses the leader again"},
		"still unfit":            {unfit, unfit, ""},
		"fit again":              {unfit, leads, ""},
		"released":               {leads, free, "a released the lock"},
		"preempted":              {leads, of(recordOf("b", "canary", 4)), "b (canary) acquired the lock from a and holds"},
		"new term":               {leads, of(recordOf("a", "stable", 4)), "a (stable) began a new term and holds"},
		"acquired":               {free, holds, "a (stable) acquired the lock and holds"},
		"acquired without key":   {free, of(recordOf("a", "", 3)), "a acquired the lock and holds"},
		"unreadable":             {leads, of("{"), "record became unreadable"},
		"handed over":            {leads, nominated, "b was nominated by a"},
		"nominated while free":   {free, nominated, "b was nominated by an unknown process"},
		"requested":              {holds, request("b", "b", ""), "handover to b requested (operator, by b)"},
		"same request":           {request("b", "b", ""), request("b", "b", ""), ""},
		"no target":              {holds, request("", "", ""), "handover to any candidate requested (operator, by ?)"},
		"other target":           {request("b", "ann", ""), request("c", "bob", ""), "handover to c requested (operator, by bob)"},
		"accepted":               {request("b", "b", ""), request("b", "b", `,"accepted":true`), "handing over to b (operator, by b)"},
		"refused":                {holds, request("b", "b", `,"refused":"no"`), "refused handover to b (operator, by b): no"},
		"hold":                   {holds, hold, "ann set a hold for 60s (pause)"},
		"same hold":              {hold, hold, ""},
		"longer hold":            {hold, of(stable, holdKey, strings.Replace(holdOfAnn, "60", "90", 1)), "ann set a hold for 90s (pause)"},
		"hold removed":           {hold, holds, "hold removed"},
		"acquired during a hold": {hold, of(recordOf("b", "stable", 4)), "b (stable) acquired the lock from a and holds"},

		"coordinated, named":               {coordinated("", 3), coordinated("a.e", 3), "coordinator named a (stable)"},
		"coordinated, handed over":         {coordinated("a.e", 3, markerKey, "v1 a.e 3 handover"), coordinated("b.e", 4), "b (stable) was nominated by a"},
		"coordinated, acquired":            {coordinated("", 3), coordinated("a.e", 3, markerKey, "v1 a.e 3 handover"), "a (stable) acquired the lock and leads"},
		"coordinated, preferred":           {coordinated("a.e", 3), coordinated("a.e", 3, preferred, "b.e"), "coordinator requested a change to b"},
		"coordinated, same preferred":      {coordinated("a.e", 3, preferred, "b.e"), coordinated("a.e", 3, preferred, "b.e"), ""},
		"coordinated, no longer preferred": {coordinated("a.e", 3, preferred, "b.e"), coordinated("a.e", 3), ""},
	} {
		if got := strings.Join(Changes(c.before, c.after), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
