package wiring

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// upgrader is the server of an aggregated API, which upgrades every connection that asks for it.
type upgrader struct {
	*httptest.Server
	asked atomic.Int32 // requests that asked for it
	over  atomic.Int32 // connections that are over again
}

func upgradingServer(t *testing.T) *upgrader {
	t.Helper()
	u := &upgrader{}
	u.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		u.asked.Add(1)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_ = rw.Flush()
		_, _ = bufio.NewReader(conn).ReadByte() // until it is closed
		u.over.Add(1)
	}))
	t.Cleanup(u.Close)
	return u
}

// The group of an aggregated API. One cluster has it once.
const upgradable = "upgrades.incumbent.dev"

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// aggregate has the API server pass requests for a group on to the upgrader. It passes on what
// asks for an upgrade, too, and to the loopback, which it does for no pod, service or node.
func (s *stage) aggregate(u *upgrader) {
	s.t.Helper()
	at, err := url.Parse(u.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = s.admin.CoreV1().Services(s.namespace).Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "upgrader"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: at.Hostname()},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	all := s.cluster.Client(s.t).Dynamic().Resource(apiServices)
	name := "v1." + upgradable
	_, err = all.Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": upgradable, "version": "v1", "groupPriorityMinimum": int64(1), "versionPriority": int64(1), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": s.namespace, "name": "upgrader", "port": int64(port)},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		// Namespaces wait for every registered API.
		if err := all.Delete(context.WithoutCancel(s.t.Context()), name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	var last any
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the aggregated API is %v", last)
		}
	})
	eventually(s.t, "the API server reaches the aggregated API", func() bool {
		now, err := all.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		last = now.Object["status"]
		return strings.Contains(fmt.Sprint(last), "status:True")
	})
}

func TestUpgradeThroughProxy_Rejected(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LockTypeLease)
	s.prepare()
	u := upgradingServer(t)
	s.aggregate(u)
	a := s.enter("pilot-0", "stable", nil)
	s.allowUpgrades()
	a.leads()
	config := a.Client().RESTConfig()
	config.NextProtos = []string{"http/1.1"} // whose connections can be upgraded
	path := config.Host + "/apis/" + upgradable + "/v1/namespaces/" + s.namespace + "/" + upgrades + "/anything"
	rt, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	post := func() (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if _, err := post(); !errors.Is(err, fence.ErrUpgrade) || u.asked.Load() != 1 {
		t.Errorf("the server was asked %d times to upgrade a connection: %v", u.asked.Load(), err)
	}
	eventually(t, "the connection is closed", func() bool { return u.over.Load() == 1 })
	a.Gate().AllowUpgrades(func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/"+upgrades+"/") })
	if code, err := post(); code != http.StatusSwitchingProtocols || err != nil {
		t.Errorf("a declared upgrade: status %d, %v", code, err)
	}
	overwrite(a)
	a.isTold()
	if _, err := post(); !errors.Is(err, fence.ErrNotLeader) || u.asked.Load() != 2 {
		t.Errorf("a declared upgrade after the loss: %v", err)
	}
	a.mayReturn()
}

func (s *stage) allowUpgrades() {
	s.t.Helper()
	rbac := s.admin.RbacV1()
	meta := metav1.ObjectMeta{Name: "upgrades"}
	if _, err := rbac.Roles(s.namespace).Create(s.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{upgradable}, Resources: []string{upgrades}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := rbac.RoleBindings(s.namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "upgrades"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "pilot", Namespace: s.namespace}},
	}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
