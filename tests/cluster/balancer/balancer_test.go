package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/balancer"
)

const (
	// bound limits each wait.
	bound = 30 * time.Second
	// port and portName are those of each Service.
	port     = 8080
	portName = "http"
)

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

// service creates a LoadBalancer Service without a selector, and returns its address. The test writes its endpoints.
func (w *world) service(name string) (address string) {
	w.Helper()
	services := w.client.CoreV1().Services(w.namespace)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: portName, Port: port}},
	}}
	if _, err := services.Create(w.Context(), service, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until("it has an address", func() error {
		service, err := services.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("no address: %w", err)
		}
		address = service.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	return address
}

// newBackend returns a server that responds with its name.
func newBackend(t *testing.T, name string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(server.Close)
	return server
}

// endpoint writes an EndpointSlice of the Service for a listener on 127.0.0.1.
func (w *world) endpoint(service, name string, listener net.Listener, ready bool) {
	w.Helper()
	sliceName := portName
	number := int32(listener.Addr().(*net.TCPAddr).Port)
	blank := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &sliceName, Port: &number}},
	}
	err := cluster.Edit(w.Context(), w.client.DiscoveryV1().EndpointSlices(w.namespace), blank, func(slice *discoveryv1.EndpointSlice) {
		// The published form of 127.0.0.1.
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}
	})
	if err != nil {
		w.Fatal(err)
	}
}

// ask sends one request on a new connection.
func ask(address string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: bound}).Get("http://" + target(address))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func target(address string) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// answers waits until exactly these backends respond.
func (w *world) answers(address string, names ...string) {
	w.Helper()
	w.until("the response comes from "+strings.Join(names, ","), func() error {
		seen := map[string]bool{}
		for range 2 * len(names) {
			name, err := ask(address)
			if err != nil {
				return err
			}
			seen[name] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, names) {
			return fmt.Errorf("responses from %v", got)
		}
		return nil
	})
}

func TestReadyEndpoints(t *testing.T) {
	w := newWorld(t)
	address := w.service("web")
	if !strings.HasPrefix(address, "127.") {
		t.Errorf("address %s", address)
	}
	w.until("no endpoint answers", func() error {
		if name, err := ask(address); err == nil {
			return fmt.Errorf("%s does", name)
		}
		return nil
	})
	a, b := newBackend(t, "a"), newBackend(t, "b")
	w.endpoint("web", "a", a.Listener, true)
	w.endpoint("web", "b", b.Listener, false)
	w.answers(address, "a")
	w.endpoint("web", "b", b.Listener, true)
	w.answers(address, "a", "b")
	w.endpoint("web", "a", a.Listener, false)
	w.answers(address, "b")
	// A dead endpoint that is still listed costs no connection.
	w.endpoint("web", "a", a.Listener, true)
	w.answers(address, "a", "b")
	a.Close()
	w.answers(address, "b")
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
	address := w.service("echo")
	w.endpoint("echo", "echo", listener, true)
	dial := func() net.Conn {
		var conn net.Conn
		w.until("it is echoed", func() error {
			if conn, err = net.Dial("tcp", target(address)); err != nil {
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
	if conn, err := net.Dial("tcp", target(address)); err == nil {
		t.Error("it accepts connections after its end")
		conn.Close()
	}
}
