package interop

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// same compares records.
func same(who string, theirs, ours k8sresourcelock.LeaderElectionRecord) error {
	if !equality.Semantic.DeepEqual(theirs, ours) {
		return fmt.Errorf("%s reads a different record than incumbent: %+v, not %+v", who, theirs, ours)
	}
	return nil
}

// judge checks the records.
func (s *stage) judge() {
	if err := s.journal.whole(); err != nil {
		s.t.Errorf("history of the lock: %v", err)
	}
	s.oursNeverOverlap()
	s.oursWaitForPeers()
	s.recordsAndForeignParts()
}

func (s *stage) oursNeverOverlap() {
	ours := slices.DeleteFunc(slices.Clone(s.members), func(m *member) bool { return m.Library != electors.Incumbent })
	lives.Apart(s.t, ours...)
}

// Lives implements lives.Candidate.
func (m *member) Lives() (name string, spans lives.Spans) { return m.Identity, m.Spans() }

// oursWaitForPeers checks each start of an incumbent candidate: every peer that had started before was cancelled, had
// released the lock, or its last lease had expired.
func (s *stage) oursWaitForPeers() {
	for _, a := range s.members {
		if a.Library != electors.Incumbent {
			continue
		}
		for _, start := range a.Spans() {
			for _, b := range s.members {
				if b.Library != electors.Incumbent {
					s.waited(a, start.From, b)
				}
			}
		}
	}
}

func (s *stage) waited(a *member, start time.Time, b *member) {
	for _, span := range b.Spans() {
		// The time of a ConfigMap's record has whole seconds, so a later record of b can look older than start.
		if cancelled := !span.Told.IsZero() && !span.Told.After(start); span.From.After(start) || cancelled {
			continue
		}
		end, released := s.leaseEnd(b.Identity, start)
		if end.IsZero() {
			s.t.Errorf("%v candidate %s ran at %v without a record", b.Library, b.Identity, span)
		}
		if over := end.Add(a.PeerGrace); start.Before(over) && !released {
			s.t.Errorf("%s started %v before the lease of %v candidate %s expired, which had not released it",
				a.Identity, over.Sub(start), b.Library, b.Identity)
		}
	}
}

// leaseEnd returns the end of the last lease that a peer wrote before a time, and whether the next record had no holder.
// A peer also releases a lease that it could not renew in time, before it cancels its run function. All processes use the
// clock of this machine.
func (s *stage) leaseEnd(holder string, before time.Time) (end time.Time, released bool) {
	last := ""
	for _, e := range s.journal.entries() {
		r := e.snap.Record
		if e.deleted || r.RenewTime.After(before) {
			continue
		}
		switch {
		case r.HolderIdentity == holder:
			end = r.RenewTime.Add(time.Duration(r.LeaseDurationSeconds) * time.Second)
			released = false
		case last == holder:
			released = r.HolderIdentity == "" && !slices.ContainsFunc(e.meta.ManagedFields, oursWrote)
		}
		last = r.HolderIdentity
	}
	return end, released
}

// oursWrote reports whether an incumbent candidate wrote the record last. All of them have the same manager.
func oursWrote(entry metav1.ManagedFieldsEntry) bool {
	if entry.Manager != "pilot" || entry.FieldsV1 == nil {
		return false
	}
	fields := entry.FieldsV1.GetRawBytes()
	return bytes.Contains(fields, []byte(`"f:leaseDurationSeconds"`)) || bytes.Contains(fields, []byte(`"f:control-plane.alpha.kubernetes.io/leader"`))
}

func (s *stage) recordsAndForeignParts() {
	deleted := false
	transitions, uid := 0, ""
	for _, e := range s.journal.entries() {
		if err := e.readByPeers(s.t.Context(), s.writer(e)); err != nil {
			s.t.Errorf("version %s: %v", e.meta.ResourceVersion, err)
		}
		if e.snap.Unreadable != nil {
			s.t.Errorf("version %s: %v", e.meta.ResourceVersion, e.snap.Unreadable)
		}
		if e.deleted {
			deleted = true
			continue
		}
		if uid != string(e.meta.UID) {
			uid, transitions = string(e.meta.UID), 0
		}
		n := e.snap.Record.LeaderTransitions
		if !deleted && transitions == 0 && n != 1 && e.snap.Record.HolderIdentity != "" {
			s.t.Errorf("version %s: the first term of an object without a record has number %d", e.meta.ResourceVersion, n)
		}
		if n < transitions {
			s.t.Errorf("version %s: leaderTransitions decreased from %d to %d", e.meta.ResourceVersion, transitions, n)
		} else {
			transitions = n
		}
		if !deleted {
			s.foreignParts(e)
		}
	}
}

// writer returns the library of the holder. A released record counts as client-go's, because it has no key.
func (s *stage) writer(e entry) electors.Library {
	for _, m := range s.members {
		if m.Identity == e.snap.Record.HolderIdentity || e.snap.Record.HolderIdentity == "" && m.Library == electors.ClientGo {
			return m.Library
		}
	}
	return electors.Incumbent
}

func (s *stage) foreignParts(e entry) {
	type part struct {
		what      string
		want, got map[string]string
	}
	parts := []part{{"annotation", foreignAnnotation, e.meta.Annotations}, {"label", foreignLabel, e.meta.Labels}}
	if cm, is := e.object.(*corev1.ConfigMap); is {
		parts = append(parts, part{"data", foreignData, cm.Data})
	}
	for _, p := range parts {
		for key, value := range p.want {
			if p.got[key] != value {
				s.t.Errorf("version %s lost the %s of the key %s", e.meta.ResourceVersion, p.what, key)
			}
		}
	}
}

// tell logs the spans and records after a failure, in seconds since the start.
func (s *stage) tell() {
	if !s.t.Failed() {
		return
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return "…"
		}
		return fmt.Sprintf("%.2f", t.Sub(s.began).Seconds())
	}
	for _, a := range s.members {
		var spans []string
		for _, span := range a.Spans() {
			spans = append(spans, at(span.From)+"–"+at(span.To))
		}
		s.t.Logf("%-9v %-10s worked at %s", a.Library, a.Identity, strings.Join(spans, ", "))
	}
	for _, e := range s.journal.entries() {
		r := e.snap.Record
		s.t.Logf("%s version %s deleted=%v holder %q key %q transitions %d notes %v", at(e.at), e.meta.ResourceVersion,
			e.deleted, r.HolderIdentity, r.HolderKey, r.LeaderTransitions, e.snap.Annotations)
	}
	s.t.Log(s.log.String())
}
