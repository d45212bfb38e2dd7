package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/balancer"
	"incumbent.dev/incumbent/tests/cluster/node"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{Services: true}) }

// patience limits each wait.
const patience = 2 * time.Minute

// running runs a function until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// platform runs a node, a load balancer and the controller.
func platform(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	proxy := filepath.Join(t.TempDir(), "dataplane")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", proxy, "incumbent.dev/incumbent/tests/cluster/dataplane")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the proxy: %v\n%s", err, text)
	}
	n, err := node.New(node.Options{Config: c.Admin(), Dir: t.TempDir(), Images: map[string]string{"dataplane": proxy}, PodNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	running(t, n.Run)
	b, err := balancer.New(balancer.Options{Config: c.Admin()})
	if err != nil {
		t.Fatal(err)
	}
	running(t, b.Run)
	controller, err := gatewaydeploy.New(c.Client(t), gatewaydeploy.Config{Namespace: namespace, Image: "dataplane"})
	if err != nil {
		t.Fatal(err)
	}
	running(t, controller.Run)
}

func until(t *testing.T, what string, holds func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// get sends one request on a new connection. It returns the Pod and the body.
func get(ctx context.Context, address string) (pod, body string, err error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/path", nil)
	if err != nil {
		return "", "", err
	}
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return response.Header.Get("X-Gateway-Pod"), string(text), err
}

func TestGateway_AnswersRequests(t *testing.T) {
	c := cluster.Shared(t)
	if err := c.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := c.Client(t).Kube()
	gateways, err := gatewayclient.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	namespace := c.Namespace(t)
	platform(t, c, namespace)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from ", r.URL.Path) }))
	t.Cleanup(backend.Close)

	// An overlay sets the backend, because the proxy does not support routes.
	overlay := fmt.Sprintf("spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: BACKEND, value: %q}]}]}}}", backend.URL)
	_, err = admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"deployment": overlay},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = gateways.Gateways(namespace).Create(t.Context(), &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: gateway.GatewaySpec{
			GatewayClassName: gatewaydeploy.DefaultClass,
			Listeners:        []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
			Infrastructure:   &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: "web"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	until(t, "the Service has an address", func() error {
		service, err := admin.CoreV1().Services(namespace).Get(t.Context(), "web-istio", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(service.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("no address")
		}
		address = service.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	answers := func(port string) (pod string) {
		t.Helper()
		until(t, "it answers on port "+port, func() error {
			var body string
			if pod, body, err = get(t.Context(), net.JoinHostPort(address, port)); err != nil {
				return err
			}
			if body != "hello from /path" || !strings.HasPrefix(pod, "web-istio-") {
				return fmt.Errorf("it answers %q through Pod %q", body, pod)
			}
			return nil
		})
		return pod
	}
	first := answers("8080")
	// Another port causes another Pod at the same address.
	_, err = gateways.Gateways(namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The old Pod can answer at first, because the Service changes before its endpoints.
	until(t, "another Pod answers", func() error {
		if next := answers("9090"); next == first {
			return fmt.Errorf("Pod %s answers on both ports", first)
		}
		return nil
	})
	// The objects are deleted with the Gateway.
	if err := gateways.Gateways(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing is left", func() error {
		pods, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		services, err := admin.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if n := len(pods.Items) + len(services.Items); n > 0 {
			return fmt.Errorf("%d Pods and Services left", n)
		}
		return nil
	})
}
