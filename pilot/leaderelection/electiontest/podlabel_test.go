package electiontest_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake" //nolint:depguard // stores the Pod, not the lock
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
	"incumbent.dev/incumbent/pkg/kube"
)

// labelled is a replica whose Pod has the label while it leads.
type labelled struct {
	*testing.T
	cluster   *electiontest.Cluster
	clientset *fake.Clientset
	client    kube.Client // with clientset
	election  string      // the name of the lock
	failing   atomic.Bool
	runs      atomic.Bool
	log       harness.Log
	logger    *slog.Logger // if nil, log
	stop      func()
}

// newLabelled returns a replica whose Pod has a label from an earlier process.
func newLabelled(t *testing.T, before string) *labelled {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "a"}}
	if before != "" {
		pod.Labels = map[string]string{leaderelection.LeaderLabel: before}
	}
	p := &labelled{T: t, cluster: electiontest.New(), clientset: fake.NewClientset(pod)}
	p.client = electiontest.KubeClient(p.clientset)
	p.clientset.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return p.failing.Load(), nil, errors.New("cut off")
	})
	return p
}

// start starts the replica.
func (p *labelled) start() {
	p.Helper()
	config := p.cluster.Config("a")
	p.election = config.ElectionID
	config.LabelPod = types.NamespacedName{Namespace: "pods", Name: "a"}
	config.Logger = cmp.Or(p.logger, slog.New(slog.NewTextHandler(&p.log, nil)))
	l, err := leaderelection.New(p.client, config)
	harness.Must(p, err)
	l.AddRunContext(func(ctx context.Context) error {
		p.runs.Store(true)
		<-ctx.Done()
		p.runs.Store(false)
		return nil
	})
	p.stop = harness.Background(p, l.RunContext)
	synctest.Wait()
}

func (p *labelled) want(when, value string) {
	p.Helper()
	synctest.Wait()
	pod, err := p.clientset.CoreV1().Pods("pods").Get(p.Context(), "a", metav1.GetOptions{})
	harness.Must(p, err)
	if got := pod.Labels[leaderelection.LeaderLabel]; got != value {
		p.Errorf("%s: label %q, want %q", when, got, value)
	}
}

func TestLabelPod(t *testing.T) {
	own := electiontest.New().Config("a").ElectionID
	for name, c := range map[string]struct {
		before, after string // labels of an earlier process, and of the follower
		follows, lose bool   // from the start, or after a term
	}{
		"stop":                      {},
		"loss":                      {lose: true},
		"label of earlier process":  {before: own, follows: true},
		"label of another election": {before: "other", after: "other", follows: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newLabelled(t, c.before)
				if c.follows {
					p.cluster.Overwrite("b")
				}
				p.start()
				if !c.follows {
					p.want("in the term", own)
				}
				if c.lose {
					p.cluster.Overwrite("b")
				}
				if c.follows || c.lose {
					p.want("as a follower", c.after)
				}
				p.stop()
				p.want("after the end", c.after)
			})
		})
	}
}

func TestLabelPod_FailedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLabelled(t, "")
		p.failing.Store(true)
		p.start()
		time.Sleep(time.Minute)
		p.failing.Store(false)
		time.Sleep(leaderelection.DefaultRetryPeriod)
		p.want("in the term", p.election)
		p.failing.Store(true)
		p.cluster.Overwrite("b")
		p.want("while requests fail", p.election)
		time.Sleep(time.Second)
		p.failing.Store(false)
		time.Sleep(leaderelection.DefaultRetryPeriod)
		p.want("when they succeed again", "")
		p.stop()
		if n := p.log.Count("failed to label the Pod"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, &p.log)
		}
	})
}

// hanging is an API server that does not respond.
type hanging struct{}

func (hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// blockedLog is a Logger that does not return until it is closed.
type blockedLog struct {
	slog.Handler
	closed chan struct{}
}

func (b blockedLog) Handle(context.Context, slog.Record) error {
	<-b.closed
	return nil
}

func (blockedLog) Enabled(context.Context, slog.Level) bool { return true }

func (b blockedLog) WithAttrs([]slog.Attr) slog.Handler { return b }

// Neither an API server that does not respond nor a Logger that does not return delays the run functions. The release waits for the
// label for at most a quarter of RetryPeriod, and RunContext waits for the Logger for at most StopLimit and RetryPeriod.
func TestLabelPod_Hangs(t *testing.T) {
	const (
		retry  = leaderelection.DefaultRetryPeriod
		remove = retry / 4
		stop   = 15 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		p := newLabelled(t, "")
		var err error
		p.client, err = kube.NewClient(&rest.Config{
			Host: "http://pods.invalid", WrapTransport: func(http.RoundTripper) http.RoundTripper { return hanging{} },
		})
		harness.Must(t, err)
		log := blockedLog{slog.DiscardHandler, make(chan struct{})}
		p.logger = slog.New(log)
		p.start()
		time.Sleep(retry)
		if !p.runs.Load() {
			t.Error("the run function does not run")
		}
		p.cluster.Overwrite("b")
		if synctest.Wait(); p.runs.Load() {
			t.Error("the run function runs after the loss")
		}
		time.Sleep(2 * leaderelection.DefaultLeaseDuration)
		if !p.runs.Load() {
			t.Error("the run function does not run in the second term")
		}
		began := time.Now()
		time.AfterFunc(remove+time.Millisecond, func() {
			if synctest.Wait(); p.cluster.Record().HolderIdentity != "" {
				t.Errorf("the lock is not released; record %+v", p.cluster.Record())
			}
		})
		p.stop()
		if took := time.Since(began); took > remove+stop+retry {
			t.Errorf("returned after %v", took)
		}
		close(log.closed)
	})
}
