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
		"lock created: a leads":             {nil, leads},
		"lock created: free":                {nil, of(recordOf("", "", 3))},
		"lock deleted; before: a leads":     {leads, nil},
		"a leads":                           {of(stable), leads},
		"a became unfit":                    {leads, of(stable, markerKey, "v1 a 3 handover unfit")},
		"a released the lock":               {leads, of(recordOf("", "", 3))},
		"b (canary) acquired the lock from": {leads, of(recordOf("b", "canary", 4))},
		"a (stable) began a new term and h": {leads, of(recordOf("a", "stable", 4))},
		"a (stable) acquired the lock and ": {of(recordOf("", "", 2)), of(stable)},
		"a acquired the lock and holds":     {of(recordOf("", "", 2)), of(recordOf("a", "", 3))},
		"record became unreadable":          {leads, of("{")},
		"b was nominated by a":              {leads, of(strings.Replace(recordOf("b", "", 4), "03:05:05", "03:04:05", 1), "incumbent.dev/nominated", "b")},
		"handover to b requested (unfit, b": {of(stable), of(stable, "incumbent.dev/handover-request", request(""))},
		"leader accepted to hand over to b": {of(stable), of(stable, "incumbent.dev/handover-request", request(`,"accepted":true`))},
		"leader refused to hand over to b:": {of(stable), of(stable, "incumbent.dev/handover-request", request(`,"refused":"no"`))},
		"ann set a hold for 60 s (pause)":   {of(stable), of(stable, "incumbent.dev/hold", hold)},
		"hold removed":                      {of(stable, "incumbent.dev/hold", hold), of(stable)},
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
