package inspect

import (
	"fmt"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// TestWords compares the texts for all states and kinds of default revision with testdata/words.txt.
func TestWords(t *testing.T) {
	const marker, hold = "v1 a 3 handover", `{"holder":"a","transitions":3,"seconds":60,"requester":"ann","reason":"pause"}`
	locks := []struct {
		name string
		lock Lock
	}{
		{"leads", configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker)},
		{"leads, revision canary", configMap(t, "e", recordOf("a", "canary", 3), markerKey, marker)},
		{"leads, remote", configMap(t, "e", recordOf("a", "^canary", 3), markerKey, marker)},
		{"leads, unfit", configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker+" unfit")},
		{"leads, hold", configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker, "incumbent.dev/hold", hold)},
		{"leads, revision canary, hold", configMap(t, "e", recordOf("a", "canary", 3), markerKey, marker, "incumbent.dev/hold", hold)},
		{"holds", configMap(t, "e", recordOf("a", "stable", 3))},
		{"holds, old marker", configMap(t, "e", recordOf("a", "stable", 3), markerKey, "v1 b 2")},
		{"no rank", configMap(t, "e", recordOf("a", "", 3))},
		{"per revision", configMap(t, "gateway-stable", recordOf("a", "stable", 3))},
		{"free", configMap(t, "e", recordOf("", "", 3))},
		{"free, old marker", configMap(t, "e", recordOf("", "", 3), markerKey, "v1 b 2")},
		{"unreadable", configMap(t, "e", "{")},
		{"empty", func() Lock {
			l := lease(t, "e", "a")
			l.Snapshot.Raw = nil
			l.Snapshot.Record.HolderIdentity = ""
			return l
		}()},
	}
	for _, c := range []struct{ name, holder, strategy, key, value string }{
		{"coordinated", "a.e", defaultRevision, markerKey, "v1 a.e 3 handover"},
		{"coordinated, other elector", "a.e", defaultRevision, "other", ""},
		{"coordinated, hold", "a.e", defaultRevision, "incumbent.dev/hold", strings.Replace(hold, `"a"`, `"a.e"`, 1)},
		{"coordinated, other preferred", "a.e", defaultRevision, "incumbent.dev/preferred-holder", "z.e"},
		{"strategy, holder not coordinated", "a", defaultRevision, markerKey, "v1 a 3 handover"},
		{"coordinated, free", "", defaultRevision, "other", ""},
		{"other strategy", "a.e", "mine", markerKey, "v1 a.e 3 handover"},
		{"other strategy, free", "", "mine", "other", ""},
	} {
		locks = append(locks, struct {
			name string
			lock Lock
		}{c.name, lease(t, "e", c.holder, "incumbent.dev/strategy", c.strategy, c.key, c.value)})
	}
	candidates := map[string][]Candidate{
		"no members": nil,
		"members": {
			{Identity: "a", Key: "stable", Warm: true, Fit: true, Witness: "parent"}, {Identity: "cold", Key: "canary", Fit: true},
			{Identity: "late", Key: "canary", Warm: true, Fit: true, Late: true}, {Identity: "late2", Key: "beta", Late: true},
			{Identity: "unfit", Key: "canary", Warm: true}, {Identity: "z", Key: "stable", Warm: true, Fit: true},
		},
		"unfit members": {{Identity: "u2", Key: "canary", Warm: true}, {Identity: "u1", Key: "stable"}},
		"one member":    {{Identity: "a", Key: "stable", Warm: true, Fit: true}},
	}
	defaults := []struct {
		name string
		d    k8sleaderelection.DefaultRevision
	}{
		{"unknown", k8sleaderelection.DefaultRevision{}}, {"none", k8sleaderelection.DefaultRevision{Synced: true}},
		{"canary", k8sleaderelection.DefaultRevision{Synced: true, Revision: "canary"}},
	}
	var out strings.Builder
	for _, l := range locks {
		fmt.Fprintf(&out, "%s\n", l.name)
		for _, problem := range Of(l.lock).Problems {
			fmt.Fprintf(&out, "  problem: %s\n", problem)
		}
		for _, d := range defaults {
			fmt.Fprintf(&out, "  default %s: %s\n", d.name, Of(l.lock).Reason(d.d))
			for _, who := range []string{"no members", "members", "unfit members", "one member"} {
				e := Of(l.lock)
				e.Candidates = candidates[who]
				e = withHolder(e)
				fmt.Fprintf(&out, "    %s: %+v\n    %s, died: %+v\n", who, e.If(d.d), who, e.IfDied(d.d))
			}
		}
	}
	golden.File(t, "testdata/words.txt", out.String())
}
