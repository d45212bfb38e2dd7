package coordination

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// counted answers each write of an object as sent, but for its status code, and counts it.
type counted struct {
	code int
	sent map[string]int // by the object's name
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c.sent[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]++
	form := r.Header.Get("Content-Type")
	if c.code != http.StatusOK {
		form = "application/json"
		body = fmt.Appendf(nil, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, metav1.StatusReasonConflict, c.code)
	}
	return &http.Response{
		StatusCode: c.code, Header: http.Header{"Content-Type": {form}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r, ContentLength: int64(len(body)),
	}, nil
}

// asking is a term in which nobody has been asked, of a free lock and one candidate.
func asking(t *testing.T, server *counted) *work {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://nothing.is.sent", Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Client: client, Namespace: "n", Logger: slog.New(slog.DiscardHandler), Situation: func() (Situation, bool) { return Situation{}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "n", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{Strategy: new(coordinationv1.CoordinatedLeaseStrategy(DefaultRevision))},
	}
	candidate := candidateOf("a.x")
	candidate.ResourceVersion = "2"
	if err := c.leases.GetIndexer().Add(lease); err != nil {
		t.Fatal(err)
	}
	if err := c.candidates.GetIndexer().Add(candidate); err != nil {
		t.Fatal(err)
	}
	return &work{Controller: c, observers: map[string]*Observer{}, troubles: map[string]string{}}
}

// A watch that is late shows a candidate as it was before it was asked, whatever else happens meanwhile: one that is asked again then
// is asked for nothing, by a write that is refused.
func TestOneThatWasAskedIsNotAskedAgainBeforeThatIsSeen(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusConflict} {
		synctest.Test(t, func(t *testing.T) {
			server := &counted{code: code, sent: map[string]int{}}
			w := asking(t, server)
			look := func(what string, asked int, again time.Duration) {
				t.Helper()
				got, err := w.reconcile(t.Context(), "x")
				if err != nil || server.sent["a.x"] != asked || got != again {
					t.Errorf("%d, %s: it is asked %d times, want %d; again after %v, want %v (%v)", code, what, server.sent["a.x"], asked, got, again, err)
				}
			}
			look("at first", 1, 0)
			look("something has happened", 1, ElectionDuration)
			time.Sleep(ElectionDuration - time.Second)
			look("something else has happened", 1, time.Second)
			time.Sleep(time.Second)
			look("the watch says nothing", 2, 0)
			newer := candidateOf("a.x")
			newer.ResourceVersion = "3"
			if err := w.candidates.GetIndexer().Update(newer); err != nil {
				t.Fatal(err)
			}
			look("somebody else has written it", 3, 0)
		})
	}
}
