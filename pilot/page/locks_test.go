package page

import (
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
	if err != nil {
		t.Fatal(err)
	}
	reader, err := NewLockReader(client)
	if err != nil {
		t.Fatal(err)
	}
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
	for name, c := range map[string]struct {
		election Election
		object   any    // or an error of each read
		reads    int    // of two calls of Read
		text     string // the beginning of LockText
		acting   bool
		problem  bool
	}{
		"expired":         {Election{Kind: inspect.Lease, Leader: "ghost", Transitions: 7, Acting: true}, lease("ghost", time.Hour), 2, "expired (renewed ", false, false},
		"may be expired":  {Election{Kind: inspect.Lease, Leader: "ghost", Transitions: 7, Acting: true}, doubtful, 2, "unknown (renewed ", true, false},
		"live":            {Election{Kind: inspect.Lease, Leader: "ghost", Transitions: 7, Acting: true}, lease("ghost", time.Second), 2, "", true, false},
		"another record":  {Election{Kind: inspect.Lease, Leader: "b", Transitions: 8, Acting: true}, lease("ghost", time.Hour), 2, "", true, false},
		"leading":         {Election{Kind: inspect.Lease, Leader: "a", Transitions: 7, Acting: true, Leading: true}, nil, 0, "", true, false},
		"disabled":        {Election{Kind: inspect.Lease, Phase: disabled}, nil, 0, "", false, false},
		"absent":          {Election{Kind: inspect.Lease}, nil, 2, "", false, false},
		"unreadable":      {Election{Kind: inspect.ConfigMap}, broken, 2, string(inspect.Unreadable), false, true},
		"forbidden":       {Election{Kind: inspect.Lease}, forbidden, 2, "unknown: the lock cannot be read", false, false},
		"forbidden, acts": {Election{Kind: inspect.Lease, Leader: "b", Acting: true}, forbidden, 2, "", true, false},
	} {
		server := lockServer(c.object)
		reader := newReader(t, server)
		c.election.Namespace, c.election.Lock = "n", "l"
		if got := reader.Judge(c.election); got.LockText != "" || got.Acting != c.election.Acting {
			t.Errorf("%s: before a read: %+v", name, got)
		}
		for range 2 {
			reader.Read(t.Context(), []Election{c.election})
		}
		got, reads := reader.Judge(c.election), len(server.Requests())
		if !strings.HasPrefix(got.LockText, c.text) || (got.LockState == "") != (c.text == "") || got.Acting != c.acting || (got.Problem != "") != c.problem || reads != c.reads {
			t.Errorf("%s: %d reads, %q, %+v", name, reads, got.LockText, got)
		}
	}
}

// A renewal between two reads shows that the holder is alive. The elector observes the next renewals.
func TestLockReader_EndsAfterRenewal(t *testing.T) {
	at := metav1.NewMicroTime(time.Now().Add(-time.Minute))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("b"), LeaseDurationSeconds: new(int32(300)), AcquireTime: &at, RenewTime: &at}}
	server := lockServer(lease)
	reader := newReader(t, server)
	e := Election{Namespace: "n", Lock: "l", Kind: inspect.Lease, Leader: "b", Acting: true}
	for i, want := range []int{1, 1, 0, 1} {
		if i == 1 {
			lease.Spec.RenewTime = new(metav1.NowMicro())
			server.Put(lease)
		}
		if i == 3 {
			e.Transitions++
		}
		reader.Read(t.Context(), []Election{e})
		if n := len(server.Requests()); n != want {
			t.Errorf("call %d of Read: %d requests, want %d", i, n, want)
		}
	}
}
