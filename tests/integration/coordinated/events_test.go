package coordinated

import (
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

const other = "example.com/Other"

// recording has a coordinator write Events as a server does: with client-go's recorder, by its own account.
func (w *world) recording(config *coordination.Config) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: config.Client.CoreV1().Events(w.home)})
	w.t.Cleanup(broadcaster.Shutdown)
	config.EventRecorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "incumbent"})
}

// events are those of one reason in the API server: about what, of which UID, and the text.
func (w *world) events(reason string) (all []string) {
	w.t.Helper()
	list, err := w.admin().Kube().CoreV1().Events(w.home).List(w.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Items {
		about := e.InvolvedObject
		all = append(all, strings.Join([]string{e.Type, about.APIVersion, about.Kind, about.Name, string(about.UID), e.Message}, " "))
	}
	slices.Sort(all)
	return all
}

// has waits for an Event of a reason that begins so.
func (w *world) has(reason, prefix string) {
	w.t.Helper()
	w.await("Event "+reason+": "+prefix, func() bool {
		return slices.ContainsFunc(w.events(reason), func(e string) bool { return strings.HasPrefix(e, prefix) })
	})
}

// What the coordinator chooses, and what keeps it from choosing, is there for kubectl to show: on the lock, and on the candidates
// that disagree.
func TestEventsOfACoordinator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.coordinate(w.recording)
	stable := w.candidate("stable-1", "stable")
	w.await("it leads", stable.leads.Load)
	lock := "coordination.k8s.io/v1 Lease x " + string(w.lease().UID) + " "
	w.has("LeaderNamed", "Normal "+lock+"named stable-1.x (incumbent.dev/DefaultRevision)")
	canary := w.candidate("canary-1", "canary")
	w.revision.Set("canary")
	w.await("the other leads", canary.leads.Load)
	w.has("LeaderPreferred", "Normal "+lock+"prefers canary-1.x to stable-1.x (incumbent.dev/DefaultRevision)")
	w.candidate("other-1", "third", func(c *leaderelection.Config) { c.Coordination.Strategy = other })
	const disagree = "nobody is named: "
	w.has("StrategiesDisagree", "Warning "+lock+disagree)
	for _, pod := range []string{"stable-1", "canary-1", "other-1"} {
		w.has("StrategiesDisagree", "Warning coordination.k8s.io/v1beta1 LeaseCandidate "+pod+".x "+string(w.leaseCandidate(pod).UID)+" "+disagree)
	}
	w.revision.Set("stable")
	if n := len(w.events("StrategiesDisagree")); n != 4 || !canary.leads.Load() || len(w.events("LeaderPreferred")) != 1 {
		t.Errorf("%q, %q", w.events("StrategiesDisagree"), w.events("LeaderPreferred"))
	}
}

// published is a LeaseCandidate whose process does not answer.
func (w *world) published(pod, strategy string, renewed *metav1.MicroTime, labels map[string]string) *coordinationv1beta1.LeaseCandidate {
	w.t.Helper()
	c, err := w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home).Create(w.t.Context(), &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: coordination.CandidateName(pod, "x"), Labels: labels},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: "x", BinaryVersion: "1.0.0", EmulationVersion: "1.0.0", Strategy: coordinationv1.CoordinatedLeaseStrategy(strategy), RenewTime: renewed,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}
