package controllertest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

// Stub is an API server for a controller. It records the attempts to write.
type Stub struct {
	*testing.T
	*apiserver.Server
	// Client is a client of the server.
	Client kube.Client
	// Log receives the log of the controller.
	Log harness.Log

	mu     sync.Mutex
	read   func(apiserver.Request) apiserver.Fault
	answer func() error
	writes []Write
}

// Write is an attempt to write.
type Write = apiserver.Request

// NewStub returns a server with objects.
func NewStub(t *testing.T, objects ...runtime.Object) *Stub {
	t.Helper()
	s := &Stub{T: t, Server: apiserver.New(objects...)}
	s.On(s.received)
	var err error
	if s.Client, err = kube.NewClient(s.Config(), kube.WithRateLimit(-1, 0)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Stub) received(r apiserver.Request) apiserver.Fault {
	s.mu.Lock()
	read, answer := s.read, s.answer
	isRead := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
	if !isRead {
		s.writes = append(s.writes, r)
	}
	s.mu.Unlock()
	switch {
	case isRead && read != nil:
		return read(r)
	case !isRead && answer != nil:
		return apiserver.Fault{Err: answer()}
	default:
		return apiserver.Fault{}
	}
}

// OnRead sets the function that returns the fault of each read.
func (s *Stub) OnRead(read func(apiserver.Request) apiserver.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = read
}

// Answer sets the function that returns the result of each write.
func (s *Stub) Answer(answer func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Writes returns the attempts to write so far.
func (s *Stub) Writes() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Write(nil), s.writes...)
}

// Controller is a controller with caches.
type Controller interface {
	Warm(ctx context.Context) error
	Run(ctx context.Context) error
	Close()
}

// Run runs a controller in a bubble of synctest while a function runs. Its caches are kept until the test ends.
func Run(t testing.TB, c Controller, during func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	warmed := make(chan error)
	go func() { warmed <- c.Warm(ctx) }()
	synctest.Wait()
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	during()
	cancel()
	<-warmed // an error if a kind cannot be read
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Cleanup(c.Close)
}
