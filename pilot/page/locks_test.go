package page

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pkg/kube"
)

// lockServer is an API server with lock objects by kind. An absent object is not found.
type lockServer struct {
	objects map[string]runtime.Object
	reads   int
}

func (s *lockServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.reads++
	kind := inspect.Lease
	if strings.Contains(r.URL.Path, "/configmaps/") {
		kind = inspect.ConfigMap
	}
	var answer any = apierrors.NewNotFound(schema.GroupResource{}, "x").Status()
	code := http.StatusNotFound
	if object := s.objects[kind]; object != nil {
		answer, code = object, http.StatusOK
	}
	if status, failed := answer.(*metav1.Status); failed {
		code = int(status.Code)
	}
	content, err := json.Marshal(answer)
	header := http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	return &http.Response{StatusCode: code, Request: r, Header: header, Body: io.NopCloser(bytes.NewReader(content))}, err
}

func newReader(t *testing.T, server http.RoundTripper) *LockReader {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://x", WrapTransport: func(http.RoundTripper) http.RoundTripper { return server }})
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
			ObjectMeta: metav1.ObjectMeta{ManagedFields: written},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(30)), LeaseTransitions: new(int32(7)), AcquireTime: &at, RenewTime: &at},
		}
	}
	doubtful := lease("ghost", time.Hour)
	doubtful.ManagedFields = nil // only the clock of the holder is known
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"control-plane.alpha.kubernetes.io/leader": "{"}}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", nil).Status()
	for name, c := range map[string]struct {
		election Election
		objects  map[string]runtime.Object
		reads    int    // of two calls of Read
		text     string // the beginning of LockText
		acting   bool
		problem  bool
	}{
		"expired":         {Election{Kind: inspect.Lease, Leader: "ghost", Transitions: 7, Acting: true}, map[string]runtime.Object{inspect.Lease: lease("ghost", time.Hour)}, 2, "expired (renewed ", false, false},
		"may be expired":  {Election{Kind: inspect.Lease, Leader: "ghost", Transitions: 7, Acting: true}, map[string]runtime.Object{inspect.Lease: doubtful}, 2, "unknown (renewed ", true, false},
		"live":            {Election{Kind: inspect.Lease, Leader: "ghost", Transitions: 7, Acting: true}, map[string]runtime.Object{inspect.Lease: lease("ghost", time.Second)}, 2, "", true, false},
		"another record":  {Election{Kind: inspect.Lease, Leader: "b", Transitions: 8, Acting: true}, map[string]runtime.Object{inspect.Lease: lease("ghost", time.Hour)}, 2, "", true, false},
		"leading":         {Election{Kind: inspect.Lease, Leader: "a", Transitions: 7, Acting: true, Leading: true}, nil, 0, "", true, false},
		"disabled":        {Election{Kind: inspect.Lease, Phase: disabled}, nil, 0, "", false, false},
		"absent":          {Election{Kind: inspect.Lease}, nil, 2, "", false, false},
		"unreadable":      {Election{Kind: inspect.ConfigMap}, map[string]runtime.Object{inspect.ConfigMap: broken}, 2, string(inspect.Unreadable), false, true},
		"forbidden":       {Election{Kind: inspect.Lease}, map[string]runtime.Object{inspect.Lease: &forbidden}, 2, "unknown: the lock cannot be read", false, false},
		"forbidden, acts": {Election{Kind: inspect.Lease, Leader: "b", Acting: true}, map[string]runtime.Object{inspect.Lease: &forbidden}, 2, "", true, false},
	} {
		server := &lockServer{objects: c.objects}
		reader := newReader(t, server)
		c.election.Namespace, c.election.Lock = "n", "l"
		if got := reader.Judge(c.election); got.LockText != "" || got.Acting != c.election.Acting {
			t.Errorf("%s: before a read: %+v", name, got)
		}
		for range 2 {
			reader.Read(t.Context(), []Election{c.election})
		}
		got := reader.Judge(c.election)
		if !strings.HasPrefix(got.LockText, c.text) || (got.LockState == "") != (c.text == "") || got.Acting != c.acting || (got.Problem != "") != c.problem || server.reads != c.reads {
			t.Errorf("%s: %d reads, %q, %+v", name, server.reads, got.LockText, got)
		}
	}
}

// A renewal between two reads shows that the holder is alive. The elector observes the next renewals.
func TestLockReader_EndsAfterRenewal(t *testing.T) {
	at := metav1.NewMicroTime(time.Now().Add(-time.Minute))
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("b"), LeaseDurationSeconds: new(int32(300)), AcquireTime: &at, RenewTime: &at}}
	server := &lockServer{objects: map[string]runtime.Object{inspect.Lease: lease}}
	reader := newReader(t, server)
	e := Election{Namespace: "n", Lock: "l", Kind: inspect.Lease, Leader: "b", Acting: true}
	for i, want := range []int{1, 2, 2, 3} {
		if i == 1 {
			lease.Spec.RenewTime = new(metav1.NowMicro())
		}
		if i == 3 {
			e.Transitions++
		}
		if reader.Read(t.Context(), []Election{e}); server.reads != want {
			t.Errorf("call %d of Read: %d requests, want %d", i, server.reads, want)
		}
	}
}
