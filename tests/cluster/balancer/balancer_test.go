package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/balancer"
)

// bound limits each wait.
const bound = 30 * time.Second

// world is a namespace with a running balancer.
type world struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	// stop stops the balancer and returns the result of Run.
	stop func() error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := cluster.Shared(t)
	client := c.Client(t).Kube()
	b, err := balancer.New(balancer.Options{Config: c.Admin()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	w := &world{T: t, client: client, namespace: c.Namespace(t), stop: sync.OnceValue(func() error { stop(); return <-done })}
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) until(what string, holds func() error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, bound, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		w.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// service creates a LoadBalancer Service without a selector. The test writes its endpoints.
func (w *world) service(name string, ports ...int32) {
	w.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, port := range ports {
		service.Spec.Ports = append(service.Spec.Ports,
			corev1.ServicePort{Name: "p" + strconv.Itoa(int(port)), Port: port, TargetPort: intstr.FromInt32(port)})
	}
	if _, err := w.client.CoreV1().Services(w.namespace).Create(w.Context(), service, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// address returns the address in the status, or "".
func (w *world) address(name string) string {
	w.Helper()
	service, err := w.client.CoreV1().Services(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if in := service.Status.LoadBalancer.Ingress; len(in) == 1 {
		return in[0].IP
	}
	return ""
}

func (w *world) addressed(name string) (address string) {
	w.Helper()
	w.until("it has an address", func() error {
		if address = w.address(name); address == "" {
			return errors.New("no address")
		}
		return nil
	})
	return address
}

// backend is a server that responds with its name.
type backend struct {
	*httptest.Server
	name string
	port int32
}

func newBackend(t *testing.T, name, address string) backend {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	if err := s.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	_, text, _ := net.SplitHostPort(listener.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return backend{s, name, int32(port)}
}

// endpoints writes an EndpointSlice of the Service for a backend.
func (w *world) endpoints(service string, servicePort int32, b backend, ready bool) {
	w.Helper()
	portName := "p" + strconv.Itoa(int(servicePort))
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-" + b.name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &b.port}},
		Endpoints: []discoveryv1.Endpoint{{
			// The published form of 127.0.0.1.
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
	}
	slices := w.client.DiscoveryV1().EndpointSlices(w.namespace)
	_, err := slices.Update(w.Context(), slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = slices.Create(w.Context(), slice, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// ask sends one request on a new connection.
func ask(ctx context.Context, address string, port int32) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: bound}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, strconv.Itoa(int(port))), nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// answers waits until exactly these backends respond.
func (w *world) answers(address string, port int32, names ...string) {
	w.Helper()
	want := strings.Join(names, ",")
	w.until("the response comes from "+want, func() error {
		seen := map[string]bool{}
		for range 2 * max(1, len(names)) {
			name, err := ask(w.Context(), address, port)
			if err != nil {
				return err
			}
			seen[name] = true
		}
		for _, name := range names {
			if !seen[name] {
				return fmt.Errorf("no response from %s, only from %v", name, seen)
			}
		}
		if len(seen) != len(names) {
			return fmt.Errorf("responses from %v", seen)
		}
		return nil
	})
}

func (w *world) silent(address string, port int32) {
	w.Helper()
	w.until("nothing answers", func() error {
		name, err := ask(w.Context(), address, port)
		if err == nil {
			return fmt.Errorf("%s does", name)
		}
		return nil
	})
}

func TestReadyEndpoints(t *testing.T) {
	w := newWorld(t)
	w.service("web", 8080)
	address := w.addressed("web")
	if !strings.HasPrefix(address, "127.") {
		t.Errorf("address %s", address)
	}
	w.silent(address, 8080)
	a, b := newBackend(t, "a", "127.0.0.1"), newBackend(t, "b", "127.0.0.1")
	w.endpoints("web", 8080, a, true)
	w.endpoints("web", 8080, b, false)
	w.answers(address, 8080, "a")
	w.endpoints("web", 8080, b, true)
	w.answers(address, 8080, "a", "b")
	w.endpoints("web", 8080, a, false)
	w.answers(address, 8080, "b")
	// A dead endpoint that is still listed costs no connection.
	w.endpoints("web", 8080, a, true)
	w.answers(address, 8080, "a", "b")
	a.Close()
	w.answers(address, 8080, "b")
}

// Each direction of a connection may end first. The end of the balancer closes the connection.
func TestConnection_BalancerStops(t *testing.T) {
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var echoing sync.WaitGroup
	defer echoing.Wait()
	echoing.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			echoing.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	defer listener.Close()
	w.service("echo", 7007)
	_, text, _ := net.SplitHostPort(listener.Addr().String())
	port, _ := strconv.Atoi(text)
	w.endpoints("echo", 7007, backend{name: "echo", port: int32(port)}, true)
	address := w.addressed("echo")
	dial := func() net.Conn {
		var conn net.Conn
		w.until("it is echoed", func() error {
			if conn, err = net.Dial("tcp", net.JoinHostPort(address, "7007")); err != nil {
				return err
			}
			if err := conn.SetDeadline(time.Now().Add(bound)); err != nil {
				return err
			}
			_, _ = conn.Write([]byte("x"))
			got := make([]byte, 1)
			if _, err := io.ReadFull(conn, got); err != nil {
				return errors.Join(err, conn.Close())
			}
			return nil
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	half, ok := dial().(*net.TCPConn)
	if !ok {
		t.Fatal("not a TCP connection")
	}
	if _, err := half.Write([]byte("rest")); err != nil {
		t.Fatal(err)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(half); string(rest) != "rest" || err != nil {
		t.Errorf("received %q, %v", rest, err)
	}
	open := dial()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if n, err := open.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection returned %d bytes, %v, after the end of the balancer", n, err)
	}
	if conn, err := net.Dial("tcp", net.JoinHostPort(address, "7007")); err == nil {
		t.Error("it accepts connections after its end")
		conn.Close()
	}
}
