package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

// stageOf is a node with addresses whose API server is a fake clientset, with how many tokens that
// was asked for and how many Pods it was told to delete.
type stageOf struct {
	*Node
	tokens, deletions atomic.Int32
}

func newStageOf(t *testing.T, pod *corev1.Pod) *stageOf {
	t.Helper()
	client := fake.NewClientset(pod)
	s := &stageOf{}
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.tokens.Add(1)
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "secret"}}, nil
	})
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.deletions.Add(1)
		return true, nil, nil
	})
	s.Node = nodeOf(t, client)
	var err error
	if s.addresses, err = loopback.NewPool(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.addresses.Release(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func seen(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// left is how many addresses can be had.
func (s *stageOf) left() int {
	for n := 0; ; n++ {
		if _, err := s.addresses.Take(); err != nil {
			return n
		}
	}
}

// A Pod's life from its object to the object's deletion: it has an address and a token as long as it is
// there and no longer, its process is told to end and gets its time, and only then is the
// object deleted.
func TestTheLifeOfAPod(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		end    func(t *testing.T, s *stageOf, pod *corev1.Pod)
		told   bool // to end, by SIGTERM
		delete int32
	}{
		"it is deleted": {"trap 'echo told; exit 0' TERM; echo begun; while :; do sleep 0.01; done", func(t *testing.T, s *stageOf, pod *corev1.Pod) {
			deleted := pod.DeepCopy()
			now, grace := metav1.Now(), int64(60)
			deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &now, &grace
			s.see(t.Context(), deleted)
		}, true, 1},
		"its object is gone": {"trap 'echo told' TERM; echo begun; while :; do sleep 0.01; done", func(t *testing.T, s *stageOf, pod *corev1.Pod) {
			s.forget(pod.UID)
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podOf(func(p *corev1.Pod) {
				p.Spec.SchedulerName = corev1.DefaultSchedulerName
				p.Spec.RestartPolicy = corev1.RestartPolicyAlways
				p.Spec.Containers[0].Args = []string{"-c", test.script}
			})
			s := newStageOf(t, pod)
			s.options.TokenRefresh = 20 * time.Millisecond
			s.see(t.Context(), pod)
			var view Pod
			log := func() string { text, _ := os.ReadFile(view.Log); return string(text) }
			seen(t, "its process runs", func() bool {
				view, _ = s.Pod("apps", "one")
				return view.PID != 0 && view.Ready && strings.Contains(log(), "begun")
			})
			if !strings.HasPrefix(view.Address, "127.") || view.Restarts != 0 {
				t.Errorf("it is %+v", view)
			}
			if file, err := clientcmd.LoadFromFile(filepath.Join(filepath.Dir(view.Log), "kubeconfig")); err != nil || file.Contexts[file.CurrentContext].Namespace != "apps" {
				t.Errorf("its kubeconfig is not for its namespace: %v, %+v", err, file)
			}
			seen(t, "its token is made anew", func() bool { return s.tokens.Load() > 2 })
			if s.deletions.Load() != 0 {
				t.Error("its object is deleted while it runs")
			}
			test.end(t, s, pod)
			s.running.Wait()
			if _, err := os.Stat(filepath.Join("/proc", itoa(view.PID))); err == nil {
				t.Error("its process is still there")
			}
			if told := strings.Contains(log(), "told"); test.told && !told {
				t.Errorf("its process was not told to end:\n%s", log())
			}
			if n := s.deletions.Load(); n != test.delete {
				t.Errorf("its object was deleted %d times", n)
			}
			last := s.tokens.Load()
			if n := s.left(); n != loopback.Hosts {
				t.Errorf("%d addresses can be had, of %d", n, loopback.Hosts)
			}
			if s.tokens.Load() != last {
				t.Error("its token is kept longer than it")
			}
		})
	}
}

// A Pod that cannot run gives its address back once it is deleted, and its status says why.
func TestTheLifeOfAPodThatCannotRun(t *testing.T) {
	pod := podOf(func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.Containers[0].Image = "here", "none" })
	s := newStageOf(t, pod)
	s.see(t.Context(), pod)
	seen(t, "its status says why", func() bool {
		for _, a := range s.client.(*fake.Clientset).Actions() {
			if patch, ok := a.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), `image \"none\" stands for no program here`) &&
				strings.Contains(string(patch.GetPatch()), "CreateContainerConfigError") {
				return true
			}
		}
		return false
	})
	deleted := pod.DeepCopy()
	now := metav1.Now()
	deleted.DeletionTimestamp = &now
	s.see(t.Context(), deleted)
	s.running.Wait()
	if n := s.left(); n != loopback.Hosts || s.deletions.Load() != 1 {
		t.Errorf("%d addresses can be had, and its object was deleted %d times", n, s.deletions.Load())
	}
}

// A process that ends is started again after a while, which grows, and each start is counted.
func TestTheLifeOfAPodThatFails(t *testing.T) {
	pod := podOf(func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.RestartPolicy = "here", corev1.RestartPolicyAlways
		p.Spec.Containers[0].Args = []string{"-c", "echo run; exit 3"}
	})
	s := newStageOf(t, pod)
	var log strings.Builder // read once nobody writes any more
	s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s.options.RestartDelay, s.options.MaxRestartDelay = 10*time.Millisecond, 40*time.Millisecond
	s.see(t.Context(), pod)
	seen(t, "it was started again", func() bool { view, _ := s.Pod("apps", "one"); return view.Restarts >= 3 })
	view, err := s.Pod("apps", "one")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(view.Log)
	if runs := strings.Count(string(text), "run\n"); err != nil || runs < 3 {
		t.Errorf("%v: after %d restarts it has run %d times", err, view.Restarts, runs)
	}
	s.forget(pod.UID)
	s.running.Wait()
	if text := log.String(); !strings.Contains(text, "restart=10ms") || strings.Contains(text, "restart=80ms") {
		t.Errorf("it waited otherwise:\n%s", text)
	}
}

// A process that does not live, by its probe, is ended and started again.
func TestTheLifeOfAPodThatHangs(t *testing.T) {
	pod := podOf(func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.RestartPolicy = "here", corev1.RestartPolicyAlways
		container := &p.Spec.Containers[0]
		container.Args = []string{"-c", "exec sleep 60"}
		container.LivenessProbe = &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}},
			FailureThreshold: 1,
		}
	})
	s := newStageOf(t, pod)
	s.options.RestartDelay = time.Millisecond
	s.see(t.Context(), pod)
	seen(t, "it was started again", func() bool { view, _ := s.Pod("apps", "one"); return view.Restarts >= 2 })
	s.forget(pod.UID)
	s.running.Wait()
}

// The logs of a name are those of its newest Pod; an earlier one may still be ending.
func TestTheLifeOfNamesakes(t *testing.T) {
	n := nodeOf(t, nil)
	began := time.Now()
	for i, uid := range []types.UID{"12345678-old", "12345678-new", "12345678-between"} {
		pod := podOf(func(p *corev1.Pod) {
			p.UID, p.CreationTimestamp = uid, metav1.NewTime(began.Add([]time.Duration{0, time.Hour, time.Minute}[i]))
		})
		n.workers[uid] = n.newWorker(t.Context(), pod)
		defer n.workers[uid].gone()
	}
	for range 50 { // in whatever order the map has them
		if w := n.worker("apps", "one"); w == nil || w.uid != "12345678-new" {
			t.Fatalf("it is %+v", w)
		}
	}
	if n.worker("apps", "two") != nil || n.worker("else", "one") != nil {
		t.Error("a Pod that there is not has a worker")
	}
}

// A status that the API server does not take is written again, until it does.
func TestTheLifeOfAStatus(t *testing.T) {
	client := fake.NewClientset(podOf(nil))
	var tries atomic.Int32
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if tries.Add(1) < 3 {
			return true, nil, errors.New("busy")
		}
		return true, podOf(nil), nil
	})
	w := nodeOf(t, client).newWorker(t.Context(), podOf(nil))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.status.run(w.exists)
	}()
	w.status.waiting("Because", "of that")
	seen(t, "it was written in the end", func() bool { return tries.Load() == 3 })
	w.gone()
	<-ended
	if n := tries.Load(); n != 3 {
		t.Errorf("what was written was written again: %d tries", n)
	}
}
