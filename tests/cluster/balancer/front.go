package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

// front serves one Service.
type front struct {
	address string
	// endpoints returns the endpoints of a port by name.
	endpoints func(port string) []string
	next      atomic.Uint64

	listeners map[int32]*listener // by port; only the goroutine of the balancer uses it
}

// listener is the listener of one port, with its connections.
type listener struct {
	net.Listener
	port  string
	stop  context.CancelFunc
	ended sync.WaitGroup
}

func newFront(address string, endpoints func(string) []string) *front {
	return &front{address: address, endpoints: endpoints, listeners: map[int32]*listener{}}
}

// listen listens on exactly these ports until ctx ends or close is called.
func (f *front) listen(ctx context.Context, ports []corev1.ServicePort) error {
	wanted := map[int32]string{}
	for _, port := range ports {
		if port.Protocol == corev1.ProtocolTCP {
			wanted[port.Port] = port.Name
		}
	}
	for number, l := range f.listeners {
		if name, ok := wanted[number]; !ok || name != l.port {
			l.close()
			delete(f.listeners, number)
		}
	}
	var errs []error
	for number, name := range wanted {
		if f.listeners[number] != nil {
			continue
		}
		l, err := f.open(ctx, number, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.listeners[number] = l
	}
	return errors.Join(errs...)
}

func (f *front) open(ctx context.Context, number int32, name string) (*listener, error) {
	socket, err := net.Listen("tcp", net.JoinHostPort(f.address, strconv.Itoa(int(number))))
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", name, err)
	}
	ctx, stop := context.WithCancel(ctx)
	l := &listener{Listener: socket, port: name, stop: stop}
	context.AfterFunc(ctx, func() { _ = socket.Close() }) // ends Accept
	l.ended.Go(func() { f.accept(ctx, l) })
	return l, nil
}

// close returns after all connections are closed.
func (l *listener) close() {
	l.stop()
	l.ended.Wait()
}

func (f *front) close() {
	for _, l := range f.listeners {
		l.close()
	}
}

func (f *front) accept(ctx context.Context, l *listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		l.ended.Go(func() { f.forward(ctx, client, l.port) })
	}
}

// forward connects a client to an endpoint until one of them or ctx ends.
func (f *front) forward(ctx context.Context, client net.Conn, port string) {
	defer client.Close()
	server, err := f.dial(ctx, port)
	if err != nil {
		return // the client sees a closed connection
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() { pipe(server, client) })
	copying.Go(func() { pipe(client, server) })
	copying.Wait()
}

// pipe copies until one side ends, and then closes the other side for writing. An error ends both directions.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails for a closed connection
	}
}

// dial tries the endpoints in turn.
func (f *front) dial(ctx context.Context, port string) (net.Conn, error) {
	endpoints := f.endpoints(port)
	first := f.next.Add(1)
	var errs []error
	for n := range endpoints {
		target := endpoints[(first+uint64(n))%uint64(len(endpoints))]
		conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "tcp", target)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("none of %d ready endpoints responds: %w", len(endpoints), errors.Join(errs...))
}

// ready returns the targets of a slice for a named port. Unknown readiness counts as ready, as in the API.
func ready(slice *discoveryv1.EndpointSlice, port string) []string {
	var found []string
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name != nil && *p.Name != port || p.Name == nil && port != "" {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if len(endpoint.Addresses) == 0 || endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			found = append(found, net.JoinHostPort(loopback.Actual(endpoint.Addresses[0]), strconv.Itoa(int(*p.Port))))
		}
	}
	return found
}
