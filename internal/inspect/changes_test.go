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
	request := func(more string) string {
		return fmt.Sprintf(`{"identity":"b","key":"canary","reason":"unfit","requester":"b","holder":"a","transitions":3,"seconds":15%s}`, more)
	}
	const hold = `{"holder":"a","transitions":3,"seconds":60,"requester":"ann","reason":"pause"}`
	leads := of(stable, markerKey, "v1 a 3 handover")
	for want, c := range map[string][2]*Election{
		"":                                  {nil, nil},
		"there is a lock, which a leads":    {nil, leads},
		"there is a lock, which is free":    {nil, of(recordOf("", "", 3))},
		"the lock was deleted, which a lea": {leads, nil},
		"a leads":                           {of(stable), leads},
		"a would rather not lead":           {leads, of(stable, markerKey, "v1 a 3 handover unfit")},
		"a gave it up":                      {leads, of(recordOf("", "", 3))},
		"b (canary) took it from a and hol": {leads, of(recordOf("b", "canary", 4))},
		"a (stable) begins a new term and ": {leads, of(recordOf("a", "stable", 4))},
		"a (stable) took it and holds":      {of(recordOf("", "", 2)), of(stable)},
		"a took it and holds":               {of(recordOf("", "", 2)), of(recordOf("a", "", 3))},
		"the record is unreadable now":      {leads, of("{")},
		"b was written in by a":             {leads, of(strings.Replace(recordOf("b", "", 4), "03:05:05", "03:04:05", 1), "incumbent.dev/nominated", "b")},
		"asked to hand over to b (unfit, b": {of(stable), of(stable, "incumbent.dev/handover-request", request(""))},
		"the leader accepts to hand over t": {of(stable), of(stable, "incumbent.dev/handover-request", request(`,"accepted":true`))},
		"refused to hand over to b: no":     {of(stable), of(stable, "incumbent.dev/handover-request", request(`,"refused":"no"`))},
		"ann keeps it there for 60 s (paus": {of(stable), of(stable, "incumbent.dev/hold", hold)},
		"rank counts again":                 {of(stable, "incumbent.dev/hold", hold), of(stable)},
	} {
		got := strings.Join(Changes(c[0], c[1]), "; ")
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if renewed := of(strings.Replace(stable, "03:05:05", "03:05:06", 1)); len(Changes(of(stable), renewed)) != 0 {
		t.Error("a renewal is no change")
	}
}
