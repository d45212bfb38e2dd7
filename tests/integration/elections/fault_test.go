package elections

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// fault is what becomes of the next request of a kind.
type fault struct {
	kind string
	lost bool // the answer, or if it is held for ever the request
	late bool // the request goes on its way although its sender has given up
	hold bool

	met  chan struct{} // closed when the request is there; if only its answer is lost, when it was answered
	free chan struct{} // closed by the test: it may go on
	done chan struct{} // closed when a late request was answered
	code int           // with which status
	once sync.Once
	meet sync.Once
}

func (w *wire) add(f *fault) *fault {
	f.met, f.free, f.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if !f.hold {
		f.letGo()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults, w.all = append(w.faults, f), append(w.all, f)
	return f
}

// hold keeps requests of that kind until they are let go or their sender gives up.
func (w *wire) hold(kind string) *fault { return w.add(&fault{kind: kind, hold: true}) }

// delay is hold for a request that goes on its way although its sender has given up.
func (w *wire) delay(kind string) *fault { return w.add(&fault{kind: kind, hold: true, late: true}) }

// swallow lets the next request of that kind through that succeeds, and loses the answer.
func (w *wire) swallow(kind string) *fault { return w.add(&fault{kind: kind, lost: true}) }

// meet is the fault that awaits a request, if there is one. One that holds meets further
// tries too, for as long as it does.
func (w *wire) meet(kind string) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = slices.DeleteFunc(w.faults, func(f *fault) bool { return f.lasts() && isClosed(f.met) && isClosed(f.free) })
	for i, f := range w.faults {
		if f.kind != kind {
			continue
		}
		if !f.lasts() {
			w.faults = slices.Delete(w.faults, i, i+1)
		}
		return f
	}
	return nil
}

// lasts reports whether it is about more than one request.
func (f *fault) lasts() bool { return f.hold && !f.late }

// again puts a fault back that has had no effect.
func (w *wire) again(f *fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = slices.Insert(w.faults, 0, f)
}

func (f *fault) letGo() { f.once.Do(func() { close(f.free) }) }

func (f *fault) isDone() bool { return isClosed(f.done) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await waits until the request was met.
func (f *fault) await(t testing.TB) {
	t.Helper()
	within(t, "a request of the kind "+f.kind, f.met)
}

func within(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("not within %v: %s", soon, what)
	}
}

func (f *fault) play(e *end, req *http.Request, body []byte) (*http.Response, error) {
	if f.hold {
		f.meet.Do(func() { close(f.met) })
		select {
		case <-f.free:
		case <-req.Context().Done():
			if f.late {
				e.wire.late.Go(func() { f.playLate(e, req, body) })
			}
			return nil, req.Context().Err()
		}
	}
	if e.wire.isCut() {
		return nil, errCut
	}
	if f.lost {
		// Its sender may give up before the answer is there, which is lost all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), soon)
		defer cancel()
		req = req.Clone(ctx)
	}
	resp, err := e.next.RoundTrip(req)
	if f.late {
		f.answered(resp, err) // its sender has not given up
	}
	if err != nil || !f.lost {
		return resp, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		// A write that met another's has changed nothing: its sender tries again, and
		// the answer to be lost is that one's.
		e.wire.again(f)
		return keep(resp)
	}
	defer close(f.met)
	return nil, errors.Join(errors.New("the test has lost the answer"), resp.Body.Close())
}

// keep reads an answer whose request's context is about to end.
func keep(resp *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func (f *fault) playLate(e *end, req *http.Request, body []byte) {
	<-f.free
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), soon)
	defer cancel()
	late := req.Clone(ctx)
	late.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := e.next.RoundTrip(late)
	f.answered(resp, err)
	if err == nil {
		_ = resp.Body.Close()
	}
}

// answered notes what became of a request that was held up; code stays 0 when no answer came.
func (f *fault) answered(resp *http.Response, err error) {
	if err == nil {
		f.code = resp.StatusCode
	}
	close(f.done)
}

func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}
