package page

import (
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// lockServer returns a server with an object, or an error for each read.
func lockServer(object any) *apiserver.Server {
	s := apiserver.New()
	switch object := object.(type) {
	case error:
		s.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: object} })
	case runtime.Object:
		s.Put(object)
	}
	return s
}

func newReader(t *testing.T, server *apiserver.Server) *LockReader {
	t.Helper()
	client, err := kube.NewClient(server.Config())
	harness.Must(t, err)
	reader, err := NewLockReader(client)
	harness.Must(t, err)
	return reader
}

// A lock that this process does not lead is read. Its state replaces what the elector observes only if the elector cannot know it.
func TestLockReader(t *testing.T) {
	lease := func(holder string, age time.Duration) *coordinationv1.Lease {
		at := metav1.NewMicroTime(time.Now().Add(-age))
		written := []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(at.Time)), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)}}
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l", ManagedFields: written},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(30)), LeaseTransitions: new(int32(7)), AcquireTime: &at, RenewTime: &at},
		}
	}
	doubtful := lease("ghost", time.Hour)
	doubtful.ManagedFields = nil // only the clock of the holder is known
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l", Annotations: map[string]string{"control-plane.alpha.kubernetes.io/leader": "{"}}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	observed := func(lock string, state inspect.State, holder string, transitions int, status leaderelection.Status) inspect.Election {
		return inspect.Election{
			Namespace: "n", Name: "l", Lock: lock, Cluster: "there", Ranked: true, State: state, Holder: holder, Transitions: transitions,
			Process: &inspect.Process{Status: status},
		}
	}
	acting := leaderelection.Status{Status: k8sleaderelection.Status{Acting: true}}
	leading := leaderelection.Status{Status: k8sleaderelection.Status{Acting: true, Leading: true}}
	off := leaderelection.Status{Status: k8sleaderelection.Status{Phase: leaderelection.Disabled}}
	var idle leaderelection.Status
	for name, c := range map[string]struct {
		election inspect.Election
		object   any // or an error of each read
		reads    int // of two calls of Read
		state    inspect.State
		text     string // the beginning of StateText
		acting   bool
		problems int
	}{
		"expired":         {observed(inspect.Lease, inspect.Holds, "ghost", 7, acting), lease("ghost", time.Hour), 2, inspect.Expired, "expired (renewed ", false, 0},
		"may be expired":  {observed(inspect.Lease, inspect.Holds, "ghost", 7, acting), doubtful, 2, inspect.Doubtful, "unknown (renewed ", true, 0},
		"live":            {observed(inspect.Lease, inspect.Holds, "ghost", 7, acting), lease("ghost", time.Second), 2, inspect.Holds, "", true, 0},
		"another record":  {observed(inspect.Lease, inspect.Holds, "b", 8, acting), lease("ghost", time.Hour), 2, inspect.Holds, "", true, 0},
		"not observed":    {observed(inspect.Lease, inspect.Unread, "", 0, idle), lease("ghost", time.Second), 2, inspect.Holds, "", false, 0},
		"leading":         {observed(inspect.Lease, inspect.Leads, "a", 7, leading), nil, 0, inspect.Leads, "", true, 0},
		"disabled":        {observed(inspect.Lease, inspect.Free, "a", 0, off), nil, 0, inspect.Free, "", false, 0},
		"absent":          {observed(inspect.Lease, inspect.Unread, "", 0, idle), nil, 2, inspect.Empty, "", false, 0},
		"unreadable":      {observed(inspect.ConfigMap, inspect.Unread, "", 0, idle), broken, 2, inspect.Unreadable, "unreadable", false, 1},
		"forbidden":       {observed(inspect.Lease, inspect.Free, "", 0, idle), forbidden, 2, inspect.Unread, "unknown: the lock cannot be read", false, 0},
		"forbidden, acts": {observed(inspect.Lease, inspect.Holds, "b", 0, acting), forbidden, 2, inspect.Holds, "", true, 0},
	} {
		server := lockServer(c.object)
		reader := newReader(t, server)
		if got := reader.Judge(c.election); !reflect.DeepEqual(got, c.election) {
			t.Errorf("%s: before a read: %+v", name, got)
		}
		for range 2 {
			reader.Read(t.Context(), []inspect.Election{c.election})
		}
		got, reads := reader.Judge(c.election), len(server.Requests())
		if got.State != c.state || !strings.HasPrefix(got.StateText(), c.text) || got.Acting() != c.acting || len(got.Problems) != c.problems || reads != c.reads {
			t.Errorf("%s: %d reads, %q, %+v", name, reads, got.StateText(), got)
		}
		if nameOf(got) != nameOf(c.election) || !got.Ranked || got.Process != c.election.Process {
			t.Errorf("%s: %+v is another election", name, got)
		}
	}
	if e := observed(inspect.Lease, inspect.Unread, "", 0, idle); !reflect.DeepEqual((*LockReader)(nil).Judge(e), e) {
		t.Error("without a reader")
	}
}

// A renewal between two reads shows that the holder is alive. The elector observes the next renewals.
func TestLockReader_EndsAfterRenewal(t *testing.T) {
	at := metav1.NewMicroTime(time.Now().Add(-time.Minute))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("b"), LeaseDurationSeconds: new(int32(300)), AcquireTime: &at, RenewTime: &at}}
	server := lockServer(lease)
	reader := newReader(t, server)
	e := inspect.Election{Namespace: "n", Name: "l", Lock: inspect.Lease, State: inspect.Holds, Holder: "b", Process: &inspect.Process{}}
	e.Process.Acting = true
	for i, want := range []int{1, 1, 0, 1} {
		if i == 1 {
			lease.Spec.RenewTime = new(metav1.NowMicro())
			server.Put(lease)
		}
		if i == 3 {
			e.Transitions++
		}
		reader.Read(t.Context(), []inspect.Election{e})
		if n := len(server.Requests()); n != want {
			t.Errorf("call %d of Read: %d requests, want %d", i, n, want)
		}
	}
}
