package k8sleaderelection

import "testing"

func TestRevisionKey(t *testing.T) {
	for _, c := range []struct {
		revision string
		remote   bool
		want     string
	}{{"canary", false, "canary"}, {"canary", true, "^canary"}, {"", false, "default"}, {"", true, "^default"}} {
		if got := RevisionKey(c.revision, c.remote); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if revision, remote := ParseRevisionKey(c.want); RevisionKey(revision, remote) != c.want || remote != c.remote {
			t.Errorf("%s: parsed as %q, %t", c.want, revision, remote)
		}
	}
	canary := DefaultRevision{Synced: true, Revision: "canary"}
	if !Outranks("canary", "stable", canary) || Outranks("stable", "canary", canary) || Outranks("canary", "stable", DefaultRevision{Revision: "canary"}) {
		t.Error("the default revision does not decide")
	}
}
