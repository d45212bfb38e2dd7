package node

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// nodeOf is a node without a cluster, whose requests go to a fake clientset.
func nodeOf(t *testing.T, client *fake.Clientset) *Node {
	t.Helper()
	n, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Dir: t.TempDir(), Name: "here", Images: map[string]string{"sh": "/bin/sh"}, StopGrace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	n.address = "127.0.0.2"
	if client != nil {
		n.client = client
	}
	return n
}

func podOf(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "one", UID: "12345678-9", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"a/b": "y"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "pilot", Containers: []corev1.Container{{Name: "replica", Image: "sh"}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func workerOf(t *testing.T, change func(*corev1.Pod)) *worker {
	t.Helper()
	w := nodeOf(t, nil).newWorker(t.Context(), podOf(change))
	t.Cleanup(w.gone)
	return w
}

// Which Pods are this node's: those bound to it, and those that wait for the default scheduler; of
// those that are over, the ones whose object is still to go.
func TestWhichPodsAreTheNodes(t *testing.T) {
	now := metav1.Now()
	n := nodeOf(t, nil)
	for _, over := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
		for _, on := range []string{"", "here", "there"} {
			for _, scheduler := range []string{corev1.DefaultSchedulerName, "another"} {
				for _, deleted := range []*metav1.Time{nil, &now} {
					want := on == "here" || on == "" && deleted == nil && scheduler == corev1.DefaultSchedulerName
					if over == corev1.PodSucceeded || over == corev1.PodFailed {
						want = on == "here" && deleted != nil
					}
					pod := podOf(func(p *corev1.Pod) {
						p.Status.Phase, p.Spec.NodeName, p.Spec.SchedulerName, p.DeletionTimestamp = over, on, scheduler, deleted
					})
					if got := n.mine(pod); got != want {
						t.Errorf("%s, on %q, scheduler %s, deleted %v: %v", over, on, scheduler, deleted != nil, got)
					}
				}
			}
		}
	}
}

// What a node tells of its Pods, and to which process it sends a signal.
func TestANodeTellsOfItsPods(t *testing.T) {
	n := nodeOf(t, nil)
	for i, name := range []string{"one", "two"} {
		pod := podOf(func(p *corev1.Pod) { p.Name, p.UID = name, types.UID("123456789-"+name) })
		w := n.newWorker(t.Context(), pod)
		w.show(func(view *Pod) { view.Restarts = i })
		n.workers[pod.UID] = w
	}
	if all := n.Pods(); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	want := Pod{Namespace: "apps", Name: "two", UID: "123456789-two", Log: filepath.Join(n.options.Dir, "apps_two_12345678", "log"), Restarts: 1}
	if pod, err := n.Pod("apps", "two"); err != nil || pod != want {
		t.Errorf("%v, %+v", err, pod)
	}
	for _, name := range [][2]string{{"apps", "three"}, {"else", "one"}} {
		if pod, err := n.Pod(name[0], name[1]); !strings.Contains(err.Error(), ErrNoPod.Error()) || pod != (Pod{}) {
			t.Errorf("%v: %v, %v", name, pod, err)
		}
		if err := n.Signal(name[0], name[1], syscall.SIGTERM); err == nil || !strings.Contains(err.Error(), ErrNoPod.Error()) {
			t.Errorf("%v: %v", name, err)
		}
	}
	if err := n.Signal("apps", "one", syscall.SIGTERM); err == nil || !strings.Contains(err.Error(), "has no process now") {
		t.Errorf("a signal to none: %v", err)
	}
	w, other := n.workers["123456789-one"], n.workers["123456789-two"]
	n.forget("123456789-one")
	if w.exists.Err() == nil || w.wanted.Err() == nil || other.exists.Err() != nil || len(n.Pods()) != 1 {
		t.Error("a Pod whose object is gone is not forgotten, or another is")
	}
	n.forget("nobody")
}

// How long a process gets to end.
func TestThePeriodOfGrace(t *testing.T) {
	period := func(n int64) *int64 { return &n }
	for name, x := range map[string]struct {
		deletion, pod *int64
		want          time.Duration
	}{
		"by default":       {nil, nil, 30 * time.Second},
		"as the Pod says":  {nil, period(7), 7 * time.Second},
		"as it is deleted": {period(3), period(7), 3 * time.Second},
		"none":             {period(0), period(7), 0},
	} {
		w := workerOf(t, func(p *corev1.Pod) {
			p.DeletionGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds = x.deletion, x.pod
		})
		if got := w.grace(); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A process is asked to end, and ended after its period: at once when its object is gone, and after the
// node's own bound when the node stops.
func TestHowAProcessIsEnded(t *testing.T) {
	for name, x := range map[string]struct {
		script          string
		seconds         int64
		gone, stops     bool
		least, most     time.Duration
		killed, hearing bool
	}{
		"it hears":                 {script: "exec sleep 60", seconds: 60, most: 10 * time.Second, hearing: true},
		"it is deaf":               {script: "trap '' TERM; while :; do sleep 1; done", seconds: 1, least: time.Second, most: 10 * time.Second, killed: true},
		"it is deaf, gone":         {script: "trap '' TERM; while :; do sleep 1; done", seconds: 60, gone: true, most: 10 * time.Second, killed: true},
		"it is deaf, node stops":   {script: "trap '' TERM; while :; do sleep 1; done", seconds: 60, stops: true, least: 50 * time.Millisecond, most: 10 * time.Second, killed: true},
		"it needs a moment, stops": {script: "trap 'exit 0' TERM; while :; do sleep 0.01; done", seconds: 60, stops: true, most: 10 * time.Second, hearing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			n := nodeOf(t, nil)
			if x.hearing {
				n.options.StopGrace = 10 * time.Second
			}
			w := n.newWorker(ctx, podOf(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &x.seconds }))
			defer w.gone()
			log := filepath.Join(t.TempDir(), "log")
			p, err := process.Start(process.Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", x.script + "\n"}, Env: []string{"PATH=" + os.Getenv("PATH")}, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill() //nolint:errcheck // it has ended by then
			// Until the shell has set its trap, it would hear.
			deaf := func() bool {
				text, err := os.ReadFile(filepath.Join("/proc", itoa(p.Pid()), "status"))
				return err != nil || x.script == "exec sleep 60" || strings.Contains(x.script, "exit 0") && ignoredOrCaught(string(text), "SigCgt") || ignoredOrCaught(string(text), "SigIgn")
			}
			for began := time.Now(); !deaf() && time.Since(began) < 10*time.Second; {
				if kube.Pause(ctx, 5*time.Millisecond) != nil {
					break
				}
			}
			if x.gone {
				w.gone()
			}
			if x.stops {
				stop()
			}
			began := time.Now()
			if err := w.terminate(p); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if p.State() == nil || took < x.least || took > x.most {
				t.Errorf("ended %v after %v", p.State(), took)
			}
			if status := p.State().Sys().(syscall.WaitStatus); x.killed != (status.Signaled() && status.Signal() == syscall.SIGKILL) {
				t.Errorf("ended %v", p.State())
			}
		})
	}
}

// What a process is started with, and what of a Pod cannot be done here.
func TestThePlanOfAProcess(t *testing.T) {
	w := workerOf(t, func(p *corev1.Pod) {
		p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = []string{"/entry", "$(POD_NAME)"}, []string{"b", "$(GIVEN)"}
		field := func(name, path string) corev1.EnvVar {
			return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
		}
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "GIVEN", Value: "at $(POD_IP)"}, field("N", "metadata.name"), field("NS", "metadata.namespace"), field("U", "metadata.uid"),
			field("NODE", "spec.nodeName"), field("SA", "spec.serviceAccountName"), field("IP", "status.podIP"), field("IPS", "status.podIPs"),
			field("H", "status.hostIP"), field("HS", "status.hostIPs"), field("L", "metadata.labels['app']"), field("A", "metadata.annotations['a/b']"),
		}
	})
	spec, err := w.plan("127.0.0.9")
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(w.dir, "work")
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + work, "TMPDIR=" + work, "KUBECONFIG=" + filepath.Join(w.dir, "kubeconfig"),
		"POD_NAME=one", "POD_NAMESPACE=apps", "POD_IP=127.0.0.9", "GIVEN=at 127.0.0.9", "N=one", "NS=apps", "U=12345678-9",
		"NODE=here", "SA=pilot", "IP=127.0.0.9", "IPS=127.0.0.9", "H=127.0.0.2", "HS=127.0.0.2", "L=x", "A=y",
	}
	if !slices.Equal(spec.Env, env) {
		t.Errorf("the environment is\n%q\nwant\n%q", spec.Env, env)
	}
	if !slices.Equal(spec.Args, []string{"one", "b", "at 127.0.0.9"}) || spec.Path != "/bin/sh" || spec.Dir != work || spec.Log != filepath.Join(w.dir, "log") || spec.Name != "the process of Pod apps/one" {
		t.Errorf("%+v", spec)
	}
	w.latest.Store(podOf(func(p *corev1.Pod) { p.Spec.Containers[0].Args, p.Spec.Containers[0].Image = []string{"a"}, "/bin/sh" }))
	if spec, err := w.plan("127.0.0.9"); err != nil || !slices.Equal(spec.Args, []string{"a"}) || spec.Path != "/bin/sh" {
		t.Errorf("%v, %+v", err, spec)
	}
	probe := func(h corev1.ProbeHandler) *corev1.Probe { return &corev1.Probe{ProbeHandler: h} }
	for want, change := range map[string]func(*corev1.Pod){
		"no init containers":                     func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.Containers },
		"one container in a Pod, this one has 2": func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) },
		"one container in a Pod, this one has 0": func(p *corev1.Pod) { p.Spec.Containers = nil },
		"no envFrom":                             func(p *corev1.Pod) { p.Spec.Containers[0].EnvFrom = make([]corev1.EnvFromSource, 1) },
		"no startupProbe":                        func(p *corev1.Pod) { p.Spec.Containers[0].StartupProbe = &corev1.Probe{} },
		"livenessProbe: a process node asks by":  func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = probe(corev1.ProbeHandler{}) },
		`image "ground" stands for no program`:   func(p *corev1.Pod) { p.Spec.Containers[0].Image = "ground" },
		"known are sh, and absolute":             func(p *corev1.Pod) { p.Spec.Containers[0].Image = "ground" },
		"the program /no/such":                   func(p *corev1.Pod) { p.Spec.Containers[0].Image = "/no/such" },
		"/etc/passwd is no program":              func(p *corev1.Pod) { p.Spec.Containers[0].Image = "/etc/passwd" },
		"/etc is no program":                     func(p *corev1.Pod) { p.Spec.Containers[0].Image = "/etc" },
		"variable X: a process node knows values": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{}}}
		},
		`variable X: a process node knows no field "spec.x"`: func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.x"}}}}
		},
		`knows no field "metadata.labels['app'"`: func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app'"}}}}
		},
	} {
		w.latest.Store(podOf(change))
		if _, err := w.plan("127.0.0.9"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	for _, handler := range []corev1.ProbeHandler{{HTTPGet: &corev1.HTTPGetAction{}}, {TCPSocket: &corev1.TCPSocketAction{}}} {
		w.latest.Store(podOf(func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = probe(handler) }))
		if _, err := w.plan("127.0.0.9"); err != nil {
			t.Errorf("a livenessProbe that can be done: %v", err)
		}
	}
}

// What is not given has its default; paths do not depend on the working directory.
func TestDefaultsOfANode(t *testing.T) {
	o := Options{Config: &rest.Config{}, Dir: "x"}.withDefaults()
	if o.Name != "incumbent" || o.TokenLifetime != time.Hour || o.TokenRefresh != 48*time.Minute || o.RestartDelay != time.Second ||
		o.MaxRestartDelay != 30*time.Second || o.StopGrace != 5*time.Second || o.Logger == nil {
		t.Errorf("%+v", o)
	}
	given := Options{Name: "n", TokenLifetime: 10 * time.Minute, TokenRefresh: 10 * time.Minute, RestartDelay: time.Minute, MaxRestartDelay: time.Minute, StopGrace: 1, Logger: slog.Default(), Dir: "x", Config: &rest.Config{}}
	if got := given.withDefaults(); got.Name != "n" || got.TokenLifetime != given.TokenLifetime || got.TokenRefresh != given.TokenRefresh ||
		got.RestartDelay != given.RestartDelay || got.MaxRestartDelay != given.MaxRestartDelay || got.StopGrace != 1 || got.Logger != given.Logger {
		t.Errorf("%+v", got)
	}
	if err := given.validate(); err != nil { // all at their bounds
		t.Errorf("refused: %v", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	o.Images = map[string]string{"a": "b/c"}
	if o, err = o.absolute(); err != nil || o.Dir != filepath.Join(dir, "x") || o.Images["a"] != filepath.Join(dir, "b/c") {
		t.Errorf("%v, %+v", err, o)
	}
}

// A log is sent from where its process began to where the next did, within what was asked for.
func TestWhichPartOfALogIsSent(t *testing.T) {
	w := workerOf(t, nil)
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.mark(); err != nil { // there is no log yet
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(w.view.Log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\ntwo\n")
	if err := w.mark(); err != nil {
		t.Fatal(err)
	}
	write("one\ntwo\nthree\nfour\n")
	if w.runs() != 2 || w.writes(0) || w.writes(1) {
		t.Errorf("%d runs; the first writes: %v, the second: %v", w.runs(), w.writes(0), w.writes(1))
	}
	for _, x := range []struct {
		run     int
		request logRequest
		want    string
	}{
		{0, logRequest{tail: -1, limit: -1}, "one\ntwo\n"},
		{1, logRequest{tail: -1, limit: -1}, "three\nfour\n"},
		{1, logRequest{tail: -1, limit: -1, follow: true}, "three\nfour\n"}, // nobody writes any more
		{0, logRequest{tail: 1, limit: -1}, "two\n"},
		{1, logRequest{tail: 1, limit: -1}, "four\n"},
		{1, logRequest{tail: 0, limit: -1}, ""},
		{1, logRequest{tail: -1, limit: 7}, "three\nf"},
		{1, logRequest{tail: -1, limit: 0}, ""},
		{1, logRequest{tail: 1, limit: 700}, "four\n"},
	} {
		out := httptest.NewRecorder()
		if err := w.sendLog(t.Context(), out, x.run, x.request); err != nil || out.Body.String() != x.want {
			t.Errorf("process %d, %+v: %v, %q", x.run, x.request, err, out.Body)
		}
	}
	if err := os.Remove(w.view.Log); err != nil {
		t.Fatal(err)
	}
	if err := w.sendLog(t.Context(), httptest.NewRecorder(), 0, logRequest{}); err == nil {
		t.Error("a log that is gone was sent")
	}
	w.view.Log = filepath.Join(w.dir, "a", "\x00")
	if err := w.mark(); err == nil {
		t.Error("a log that cannot be looked at has a size")
	}
}
