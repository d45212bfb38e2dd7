package audit

import (
	"fmt"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/auditlog"
)

// late is a write by the previous leader, in a log that suffices otherwise.
func late(t *testing.T, change func(*auditlog.Request)) string {
	t.Helper()
	s := begun(t)
	s.Play(flipped + "bundle canary-1 shop two")
	s.Next()
	r := auditlog.Request{
		Verb: "patch", Resource: "configmaps", Namespace: "shop", Name: "bundle", Who: "stable-1", Code: 200, Stage: auditlog.Complete,
		Object: auditlog.Fields{"metadata": auditlog.Fields{"name": "bundle", "resourceVersion": "9"}},
	}
	change(&r)
	s.Log(r)
	return summary(examined(t, options(), s.Lines.String()))
}

// A dry run is a parameter of the query, or an option in the body of a deletion. Other text is none.
func TestExamine_DryRun(t *testing.T) {
	const convicted = "interleaved stable-1 1 late 3s overlap 2s"
	for query, want := range map[string]string{
		"dryRun=All": "", "fieldManager=x&dryRun=All": "", "fieldManager=dryRun=": convicted, "nodryRun=All": convicted, "dryrun=All": convicted,
		"fieldManager=%26dryRun=All": convicted, "": convicted, "%zz": convicted,
	} {
		if got := late(t, func(r *auditlog.Request) { r.Query = query }); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	deletion := func(query, level string, options auditlog.Fields) string {
		return late(t, func(r *auditlog.Request) {
			r.Verb, r.Query, r.Level, r.Sent = "delete", query, level, options
			r.Object = auditlog.Fields{"kind": "Status"}
		})
	}
	all := auditlog.Fields{"kind": "DeleteOptions", "dryRun": []string{"All"}}
	for _, c := range []struct {
		query, level string
		sent         auditlog.Fields
		want         string
	}{
		{"", "RequestResponse", all, ""},
		{"dryRun=All", "RequestResponse", auditlog.Fields{"kind": "DeleteOptions"}, "interleaved stable-1 1 late 3s overlap 2s"},
		{"dryRun=All", "RequestResponse", nil, ""},
		{"dryRun=All", "Metadata", nil, "incomplete: 1 writes of pods that did not hold leases istio-system/bundles have no logged result"},
	} {
		if got := deletion(c.query, c.level, c.sent); got != c.want {
			t.Errorf("deletion with %q and %v at %s: got %q, want %q", c.query, c.sent, c.level, got, c.want)
		}
	}
}

// A late write whose result is not in the log is no reason for an acquittal.
func TestExamine_LateWithoutResult(t *testing.T) {
	const want = "incomplete: 1 writes of pods that did not hold leases istio-system/bundles have no logged result"
	for _, change := range []func(*auditlog.Request){
		func(r *auditlog.Request) { r.Stage = auditlog.Received },
		func(r *auditlog.Request) { r.Code = 504 },
	} {
		if got := late(t, change); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := late(t, func(r *auditlog.Request) { r.Code = 403 }); got != "" {
		t.Errorf("rejected: %q", got)
	}
}

// The guards of Istio name each kind of route.
func TestIstio_Routes(t *testing.T) {
	for _, kind := range []string{"httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes"} {
		w := Write{Resource: kind + "/status"}
		if !Istio()[2].Guards(w) {
			t.Errorf("no guard for %s", w.Resource)
		}
	}
}

// Without a guard, evidence decides between several locks of one account: the leaders of the guarding lock are the writers. If
// that does not suffice, the log does not suffice.
func TestExamine_SeveralLocks(t *testing.T) {
	const (
		// stable-1 leads both elections, and hands over bundles first.
		both = "hold other stable-1 stable-1 1; lock stable-1 stable-1 1; "
		flip = "lock stable-1 canary-1 2; lock canary-1 canary-1 2; "
		rest = "hold other stable-1 canary-1 2; hold other canary-1 canary-1 2; "
	)
	for name, c := range map[string]struct{ play, want string }{
		"both":                    {both + "write stable-1 a; write stable-1 b; " + flip + rest + "write canary-1 a", ""},
		"late for both":           {both + "write stable-1 a; " + flip + rest + "write canary-1 a; write stable-1 b", "interleaved stable-1 1"},
		"late for one":            {both + "write stable-1 a; " + flip + "write stable-1 a; " + rest + "write canary-1 a", "incomplete: 1 writes of gadgets are late for one"},
		"late, a rival wrote":     {both + "write stable-1 a; write stable-1 b; write stable-1 c; write stable-1 d; " + flip + "write canary-1 a; write stable-1 a", "interleaved stable-1 1"},
		"flood of a follower":     {both + "write stable-1 a; write stable-2 a; write stable-2 a; write stable-2 b", "incomplete: 2 writes of gadgets are late for one"},
		"objects of each replica": {both + "write stable-1 a; write stable-2 b; write stable-2 b; write stable-1 a", "incomplete: the log has locks, but no other"},
	} {
		s := auditlog.New(t)
		s.Play(strings.ReplaceAll(c.play, "write ", "write gadgets "))
		got := summary(examined(t, Options{}, s.Lines.String()))
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		o := Options{Guards: []Guard{{Lock: NoLock, Resources: []string{"gadgets"}}}}
		if got := summary(examined(t, o, s.Lines.String())); got != "incomplete: the log has locks, but no other write of their candidates: log these writes too" {
			t.Errorf("%s, no lock guards them: %q", name, got)
		}
	}
}

// A term ends for its leader only when the leader can know it: a corrupted or deleted lock, until the next term.
func TestExamine_UnreadableLock(t *testing.T) {
	const corrupt = `put leases istio-system bundles {"spec":{"holderIdentity":"x","leaseDurationSeconds":-1}}; `
	for play, want := range map[string]string{
		corrupt + "bundle stable-1 shop two": "",
		corrupt + "bundle stable-1 shop two; lock stable-1 stable-1 2; bundle stable-1 shop three":                       "",
		corrupt + "bundle stable-1 shop two; lock canary-1 canary-1 2; bundle canary-1 shop three":                       "",
		corrupt + "lock canary-1 canary-1 2; bundle stable-1 shop two":                                                   "late stable-1 1 late 2s overlap 1s",
		"remove leases istio-system bundles; lock canary-1 canary-1 0; bundle stable-1 shop two":                         "late stable-1 1 late 2s overlap 1s",
		corrupt + "lock canary-1 canary-1 2; bundle canary-1 shop a; bundle stable-1 shop two; bundle canary-1 shop two": "interleaved stable-1 1 late 3s overlap 2s",
	} {
		s := begun(t)
		s.Play(play)
		if got := summary(examined(t, options(), s.Lines.String())); got != want {
			t.Errorf("%s: got %q, want %q", play, got, want)
		}
	}
}

// Two programs at one address are not distinguishable by their requests, but by the records that they write.
func TestExamine_ProgramsOutsidePods(t *testing.T) {
	s := auditlog.New(t)
	const nominate = `{"metadata":{"annotations":{"incumbent.dev/nominated":"b"}},"spec":{"holderIdentity":"b","leaseTransitions":2,"acquireTime":"2026-01-02T12:00:00Z","renewTime":"2026-01-02T12:00:00Z"}}`
	s.Play("lock user a 1; lock user a 1; put leases istio-system bundles " + nominate + "; lock user b 2; lock user b 2; lock user - 2; lock user a 3; lock user b 4")
	outside := strings.ReplaceAll(strings.ReplaceAll(s.Lines.String(), "{\"annotations\":{}", "{"), `{"auditID"`, `{"userAgent":"importer/v1","sourceIPs":["10.0.0.1"],"auditID"`)
	r := examined(t, options(), outside)
	if len(r.Locks) != 1 || r.Locks[0].Terms != 4 || r.Locks[0].Changes != 3 || r.Locks[0].Holder != "b" {
		t.Errorf("%+v", r.Locks)
	}
	if got := fmt.Sprint(r.Incomplete); got != "[the log has locks, but no other write of their candidates: log these writes too]" {
		t.Error(got)
	}
	s.Play("bundle user shop one")
	outside = strings.ReplaceAll(s.Lines.String(), `{"auditID"`, `{"userAgent":"importer/v1","sourceIPs":["10.0.0.1"],"auditID"`)
	if r := examined(t, options(), outside); len(r.Incomplete) != 1 || fmt.Sprint(r.Notes) != "[1 writes of importer were not judged: several candidates run at one address]" {
		t.Error(r.Incomplete, r.Notes)
	}
}

// Logs of two clusters have no common order. The error names both.
func TestExamine_TwoClusters(t *testing.T) {
	cluster := func(version int, uids, play string) string {
		s := auditlog.New(t)
		s.Version = version
		s.Play(play)
		return strings.ReplaceAll(s.Lines.String(), "uid-", uids)
	}
	const one = "lock stable-1 stable-1 1; bundle stable-1 shop one; wait 100; lock stable-1 stable-1 1; bundle stable-1 shop two"
	const two = "lock stable-2 stable-2 1; bundle stable-2 shop three; wait 100; lock stable-2 stable-2 1; bundle stable-2 elsewhere four"
	first := cluster(0, "a", one)
	for name, c := range map[string]struct{ other, want string }{
		"same versions":   {cluster(0, "b", two), "incomplete: the logs are of two clusters, or the store was restored: version 4 of configmaps is "},
		"other versions":  {cluster(1000, "b", two), "incomplete: the logs are of two clusters, or the store was restored: leases istio-system/bundles has the UID a1 in log1, and b1001 in log2"},
		"between":         {cluster(2, "b", two), "incomplete: the logs are of two clusters"},
		"recreated later": {cluster(1000, "b", "wait 200; "+two), ""},
	} {
		got := summary(examined(t, options(), first, c.other))
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
