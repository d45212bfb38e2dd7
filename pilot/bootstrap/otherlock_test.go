package bootstrap

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const apartText = "another installation elects by another kind of lock"

func (r *replica) apart(t *testing.T) string {
	return r.metric(t, fmt.Sprintf("incumbent_election_other_lock_held{name=%q}", electionID))
}

// by starts a replica that elects by a kind of lock, and notes its requests.
func (e *environment) by(t *testing.T, name, lock string) (*replica, *requests) {
	t.Helper()
	config := e.config(t, name)
	config.Lock = lock
	var sent requests
	sent.through(config.RESTConfig)
	return start(t, config, newController().rows()), &sent
}

// looked is how often a replica has read a lock of a kind.
func (r *requests) looked(kind string) int {
	return len(r.that(func(req *http.Request) bool {
		return req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/"+kind+"/"+electionID) && req.URL.Query().Get("watch") == ""
	}))
}

// warnings are the Events about that on an object of a kind.
func (e *environment) warnings(t *testing.T, kind string) int {
	t.Helper()
	all, err := e.admin.Kube().CoreV1().Events(e.home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, event := range all.Items {
		about := event.InvolvedObject
		if about.Kind == kind && about.Name == electionID && event.Type == corev1.EventTypeWarning && strings.HasSuffix(event.Message, "both work") {
			n++
		}
	}
	return n
}

// Two installations whose locks differ in kind: the second says so when it starts, and the
// first when one of its replicas begins to lead.
func TestInstallationsWithDifferentLocks(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	first, _ := e.by(t, "first", "configmap")
	first.leads(t)
	standby, sent := e.by(t, "standby", "configmap")
	await(t, "it has looked, and there is nothing", func() bool { return sent.looked("leases") > 0 && standby.apart(t) == "0" })

	second, _ := e.by(t, "second", "lease")
	await(t, "the second has noticed", func() bool {
		return second.apart(t) == "1" && second.lines.Count("level=WARN", apartText, "holder=first") == 1
	})
	second.leads(t)
	if !first.election(t).Leading {
		t.Error("the first does not lead any more: there is nothing to warn of")
	}
	if state := second.election(t); state.OtherLock != "first holds the configmap" {
		t.Errorf("the page says %q", state.OtherLock)
	}
	await(t, "Events on both", func() bool { return e.warnings(t, "ConfigMap") > 0 && e.warnings(t, "Lease") > 0 })
	if n := standby.lines.Count(apartText); n != 0 {
		t.Errorf("standby has looked again: nothing proves that a term's begin makes it")
	}

	if err := first.end(); err != nil {
		t.Error(err)
	}
	await(t, "one of the first begins to lead, and notices", func() bool { return standby.apart(t) == "1" && standby.lines.Count(apartText, "holder=second") == 1 })
	if err := second.end(); err != nil {
		t.Error(err)
	}
	await(t, "it is over", func() bool { return standby.apart(t) == "0" && standby.election(t).OtherLock == "" })
	if n := standby.lines.Count(apartText); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// sawNothing: a look has ended, and no further one is due.
func (r *replica) sawNothing() bool {
	r.others.mu.Lock()
	defer r.others.mu.Unlock()
	look, done := r.others.looks[r.elections.All()[0]]
	return done && look == otherLook{}
}

// What a move from one kind of lock to the other passes through is nothing to warn of.
func TestMoveFromLockToLockIsNoDifference(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	both, _ := e.by(t, "both", "multi")
	both.leads(t)
	for lock, other := range map[string]string{"configmap": "leases", "lease": "configmaps"} {
		r, sent := e.by(t, "with-"+lock, lock)
		await(t, "it follows, and has looked", func() bool { return r.election(t).LeaderIdentity == "both" && sent.looked(other) > 0 })
		await(t, "nothing is left to look at", func() bool { return r.sawNothing() })
		if r.apart(t) != "0" || r.lines.Count(apartText) != 0 {
			t.Errorf("%s warns of multi", lock)
		}
	}
}

// A lock that was left behind is nobody's.
func TestLockThatWasLeftBehind(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	gone, seconds, now := "gone", int32(1), metav1.NewMicroTime(time.Unix(1<<30, 0))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: electionID},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &gone, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	if _, err := e.admin.Kube().CoordinationV1().Leases(e.home).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r, _ := e.by(t, "a", "configmap")
	await(t, "it says so", func() bool { return r.lines.Count("level=INFO", "was left behind", "holder=gone") == 1 })
	if r.apart(t) != "0" || r.lines.Count(apartText) != 0 || r.election(t).OtherLock != "" {
		t.Error("it warns of a lock that nobody renews")
	}
}
