package wiring

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// outside is an address of this machine that is not the loopback's, to which an API server
// does not proxy.
func outside(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has no address but the loopback's: an API server proxies to no other of it")
	return ""
}

// upgrader is a pod's server, which upgrades every connection that asks for it.
type upgrader struct {
	*http.Server
	port  int
	asked atomic.Int32 // requests that asked for it
	over  atomic.Int32 // connections that are over again
	ended sync.WaitGroup
}

func upgradingServer(t *testing.T, ip string) *upgrader {
	t.Helper()
	listener, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrader{port: listener.Addr().(*net.TCPAddr).Port}
	u.Server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	})}
	u.ended.Go(func() { _ = u.Serve(listener) })
	t.Cleanup(func() { u.Close(); u.ended.Wait() })
	return u
}

// Through a pod's proxy, as through a node's or a service's, any path may upgrade its
// connection, and here nothing says so above the gate: the wire below sets the headers.
func TestAnUpgradeThroughAProxyIsRefused(t *testing.T) {
	t.Parallel()
	ip := outside(t)
	s := newStage(t, leaderelection.LeaseLock)
	s.prepare()
	u := upgradingServer(t, ip)
	a := s.enter("pilot-0", "stable", nil)
	s.allowProxy()
	pods := s.admin.CoreV1().Pods(s.namespace)
	_, err := pods.Patch(t.Context(), "pilot-0", types.MergePatchType, []byte(`{"status":{"podIP":"`+ip+`","podIPs":[{"ip":"`+ip+`"}]}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	a.leads()
	config := a.Client().RESTConfig()
	config.NextProtos = []string{"http/1.1"} // whose connections can be upgraded
	path := config.Host + "/api/v1/namespaces/" + s.namespace + "/pods/pilot-0:" + strconv.Itoa(u.port) + "/proxy/anything"
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
		t.Errorf("the pod was asked %d times to upgrade a connection: %v", u.asked.Load(), err)
	}
	eventually(t, "the connection is closed", func() bool { return u.over.Load() == 1 })
	a.Gate().AllowUpgrades(func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/proxy/") })
	if code, err := post(); code != http.StatusSwitchingProtocols || err != nil {
		t.Errorf("one that was declared: status %d, %v", code, err)
	}
	overwrite(a)
	a.isTold()
	if _, err := post(); !errors.Is(err, fence.ErrNotLeader) || u.asked.Load() != 2 {
		t.Errorf("one that was declared, after the loss: %v", err)
	}
	a.mayReturn()
}

func (s *stage) allowProxy() {
	s.t.Helper()
	rbac := s.admin.RbacV1()
	meta := metav1.ObjectMeta{Name: "proxy"}
	if _, err := rbac.Roles(s.namespace).Create(s.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/proxy"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := rbac.RoleBindings(s.namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "proxy"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "pilot", Namespace: s.namespace}},
	}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
