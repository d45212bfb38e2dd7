package electiontest_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake" //nolint:depguard // stores the Pod, not the lock
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
)

// labelled is a replica whose Pod has the label while it leads.
type labelled struct {
	*testing.T
	cluster   *electiontest.Cluster
	clientset *fake.Clientset
	election  string // the name of the lock
	failing   atomic.Bool
	log       harness.Log
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
	config.Logger = slog.New(slog.NewTextHandler(&p.log, nil))
	l, err := leaderelection.New(electiontest.KubeClient(p.clientset), config)
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- l.RunContext(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-done; err != nil {
			p.Error(err)
		}
	}
	synctest.Wait()
}

func (p *labelled) want(when, value string) {
	p.Helper()
	synctest.Wait()
	pod, err := p.clientset.CoreV1().Pods("pods").Get(p.Context(), "a", metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
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
