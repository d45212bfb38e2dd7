package elections

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// The requests for a lock, as a test names them to hit a phase exactly.
const (
	reading  = "read"
	asking   = "ask"       // a request beside another's record
	accepts  = "accept"    // a leader's answer to one
	passing  = "hand-over" // the challenger is written in
	freeing  = "release"
	taking   = "acquire" // the first write of a term
	renewing = "renew"
	another  = "other" // whatever is not about a lock
)

// wire is a replica's connection to the API server: it counts requests, can be cut and
// muted, and does to single requests what networks do.
type wire struct {
	name     string
	mu       sync.Mutex
	cut      bool
	requests map[string]int
	sent     time.Time // of the last write with our own name as holder
	faults   []*fault
	all      []*fault
	muted    map[string]chan struct{} // by resource, closed when it is heard again
	late     sync.WaitGroup
	underway sync.WaitGroup // requests but watches; added to under mu, while the wire is not cut
}

// everywhere is a resource to mute: all of them.
const everywhere = "*"

// end lets go of what is held, and waits for what is late.
func (w *wire) end() {
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	for _, f := range all {
		f.letGo()
	}
	w.unmute(everywhere)
	for _, resource := range resources {
		w.unmute(resource)
	}
	w.late.Wait()
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return &end{wire: w, next: next}
}

type end struct {
	wire *wire
	next http.RoundTripper
}

var errCut = errors.New("the test has cut this replica off")

func (e *end) RoundTrip(req *http.Request) (*http.Response, error) {
	kind, body, err := e.wire.open(req)
	if err != nil {
		return nil, err
	}
	e.wire.mu.Lock()
	e.wire.requests[req.Method]++
	cut, watch := e.wire.cut, req.URL.Query().Get("watch") == "true"
	if !cut && !watch {
		e.wire.underway.Add(1)
		defer e.wire.underway.Done()
	}
	e.wire.mu.Unlock()
	if cut {
		return nil, errCut
	}
	began := time.Now()
	resp, err := e.pass(kind, req, body)
	if kind == taking || kind == renewing {
		e.wire.wrote(began, resp, err)
	}
	if err == nil && watch {
		resp.Body = &tap{ReadCloser: resp.Body, wire: e.wire, resource: resourceOf(req), closed: make(chan struct{})}
	}
	return resp, err
}

func (e *end) pass(kind string, req *http.Request, body []byte) (*http.Response, error) {
	if f := e.wire.meet(kind); f != nil {
		return f.play(e, req, body)
	}
	return e.next.RoundTrip(req)
}

// wrote notes a write with our own name as holder that may have been stored.
func (w *wire) wrote(at time.Time, resp *http.Response, err error) {
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices || errors.Is(err, errCut) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.After(w.sent) {
		w.sent = at
	}
}

// WrappedRoundTripper lets client-go find the transport below.
func (e *end) WrappedRoundTripper() http.RoundTripper { return e.next }

func (w *wire) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.requests {
		n += k
	}
	return n
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// lastOwn is when this replica last sent a write that names it as holder, and was not refused.
func (w *wire) lastOwn() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// mute keeps what watches of a resource bring from being heard, until unmute.
func (w *wire) mute(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.muted[resource] == nil {
		w.muted[resource] = make(chan struct{})
	}
}

func (w *wire) unmute(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if heard := w.muted[resource]; heard != nil {
		close(heard)
		delete(w.muted, resource)
	}
}

// silence is what to wait for before a watch of the resource is heard; nil: nothing.
func (w *wire) silence(resource string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if heard := w.muted[everywhere]; heard != nil {
		return heard
	}
	return w.muted[resource]
}

// tap is the stream of a watch.
type tap struct {
	io.ReadCloser
	wire     *wire
	resource string
	once     sync.Once
	closed   chan struct{}
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	for silence := t.wire.silence(t.resource); silence != nil; silence = t.wire.silence(t.resource) {
		select {
		case <-silence:
		case <-t.closed:
			return n, err
		}
	}
	return n, err
}

func (t *tap) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.ReadCloser.Close()
}

// webhooks is the resource that says which revision is the default.
const webhooks = "mutatingwebhookconfigurations"

var resources = []string{"configmaps", "leases", webhooks}

// resourceOf is the kind of object that a path is about.
func resourceOf(req *http.Request) string {
	words := strings.Split(req.URL.Path, "/")
	for _, resource := range resources {
		if slices.Contains(words, resource) {
			return resource
		}
	}
	return ""
}

// open reads a request and says what it is.
func (w *wire) open(req *http.Request) (kind string, body []byte, err error) {
	if resource := resourceOf(req); resource != "configmaps" && resource != "leases" {
		return another, nil, nil
	}
	if req.Method == http.MethodGet {
		if req.URL.Query().Get("watch") == "true" || !strings.Contains(req.URL.Path, election) {
			return another, nil, nil
		}
		return reading, nil, nil
	}
	if req.Body == nil {
		return another, nil, nil
	}
	body, err = io.ReadAll(req.Body)
	if err != nil {
		return "", nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return another, body, nil
	}
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		raw, ok := obj.Annotations[k8sresourcelock.LeaderElectionRecordAnnotationKey]
		var record k8sresourcelock.LeaderElectionRecord
		if !ok || json.Unmarshal([]byte(raw), &record) != nil {
			return another, body, nil
		}
		return w.kindOf(record.HolderIdentity, record.AcquireTime.Equal(&record.RenewTime), obj.Annotations), body, nil
	case *coordinationv1.Lease:
		s := obj.Spec
		first := s.AcquireTime != nil && s.RenewTime != nil && s.AcquireTime.Time.Equal(s.RenewTime.Time)
		holder := ""
		if s.HolderIdentity != nil {
			holder = *s.HolderIdentity
		}
		return w.kindOf(holder, first, obj.Annotations), body, nil
	}
	return another, body, nil
}

// kindOf tells what a write of a lock object is for. first: it begins a term.
func (w *wire) kindOf(holder string, first bool, notes map[string]string) string {
	switch {
	case holder == "":
		return freeing
	case notes[k8sresourcelock.NominatedAnnotation] != "":
		return passing
	case holder != w.name:
		return asking
	case requestIn(notes).Accepted:
		return accepts
	case first:
		return taking
	}
	return renewing
}
