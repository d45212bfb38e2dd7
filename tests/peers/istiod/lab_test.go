package istiod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

const (
	root = "../../.."
	// stable is a revision of incumbent, canary one of istiod.
	stable, canary = "stable", "canary"
	// The programs work in this namespace.
	home = rollout.Namespace
)

// shared are the elections in which both programs take part.
var shared = []string{leaderelection.NamespaceController, leaderelection.IngressController}

// lab is a cluster with both programs.
type lab struct {
	*rollout.Rollout
	t *testing.T
	// processes are all processes that ever ran, by log file.
	processes map[string]*process
}

// process is the log of a Pod's processes.
type process struct {
	name string
	pid  int         // of the running process, or 0
	ends []time.Time // of the previous processes
}

// start starts a cluster with the charts, the fence, and the kinds of Istio. programs are the istiods by image name.
func start(t *testing.T, programs map[string]string, change func(*rollout.Options)) *lab {
	t.Helper()
	options := rollout.Options{
		Images: programs, Lease: 30 * time.Second, Renew: 15 * time.Second, Retry: 7500 * time.Millisecond,
		FenceOthers: []string{home + "/istiod*"}, Gateways: 1,
	}
	if change != nil {
		change(&options)
	}
	harness.Must(t, options.Build(t.Context(), root, t.TempDir()))
	began := time.Now()
	options.Log = func(text string) { t.Logf("%6.1f s  %s", time.Since(began).Seconds(), text) }
	r, err := rollout.Start(t.Context(), options)
	l := &lab{Rollout: r, t: t, processes: map[string]*process{}}
	t.Cleanup(func() {
		if t.Failed() {
			l.keepLogs()
		}
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
	harness.Must(l.t, err)
	istio, err := cluster.ModuleFolder(t.Context(), ".", "istio.io/istio")
	harness.Must(l.t, err)
	l.kubectl("", "apply", "--server-side", "-f", filepath.Join(istio, "manifests/charts/base/files/crd-all.gen.yaml"))
	return l
}

// program returns the path in an environment variable. The targets of the Makefile build the program and set it.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s names no program: use `make istiod` or `make istiod-inside`", variable)
	}
	return path
}

// kubectl runs kubectl as administrator.
func (l *lab) kubectl(input string, args ...string) string {
	l.t.Helper()
	said, err := l.Kubectl(l.t.Context(), []byte(input), args...)
	harness.Must(l.t, err)
	return said
}

// manifest is a revision of istiod. Its account is an administrator, so the test shows elections and not permissions.
var manifest = template.Must(template.New("").Parse(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: istiod-{{.Revision}}, namespace: {{.Namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: istiod-{{.Revision}}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: istiod-{{.Revision}}, namespace: {{.Namespace}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod-{{.Revision}}, namespace: {{.Namespace}}}
spec:
  replicas: {{.Replicas}}
  selector: {matchLabels: {app: istiod, istio.io/rev: {{.Revision}}}}
  template:
    metadata: {labels: {app: istiod, istio.io/rev: {{.Revision}}}}
    spec:
      serviceAccountName: istiod-{{.Revision}}
      containers:
      - name: discovery
        image: {{.Image}}
        args:
        - discovery
        - --kubeconfig=$(KUBECONFIG)
        - --monitoringAddr=$(POD_IP):15014
        - --httpAddr=$(POD_IP):8080
        - --httpsAddr=$(POD_IP):15017
        - --grpcAddr=$(POD_IP):15010
        - --secureGRPCAddr=$(POD_IP):15012
        - --ctrlz_port=0
        env:
        - {name: REVISION, value: {{.Revision}}}
        - {name: CLUSTER_ID, value: Kubernetes}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`))

// install installs a revision of istiod and waits until it is ready.
func (l *lab) install(revision, image string, replicas int) {
	l.t.Helper()
	var text bytes.Buffer
	harness.Must(l.t, manifest.Execute(&text, map[string]any{"Revision": revision, "Image": image, "Replicas": replicas, "Namespace": home}))
	l.kubectl(text.String(), "apply", "-f", "-")
	l.await(revision+" is ready", func() string {
		ready := 0
		for _, p := range l.pods(revision) {
			if p.Ready {
				ready++
			}
			if p.Restarts > 2 {
				l.t.Fatalf("istiod ended %d times; end of its log:\n%s", p.Restarts, tail(p.Log))
			}
		}
		if ready != replicas {
			return fmt.Sprintf("%d of %d Pods are ready", ready, replicas)
		}
		return ""
	})
}

func (l *lab) uninstall(revision string) {
	l.t.Helper()
	l.kubectl("", "-n", home, "delete", "deployment", "istiod-"+revision, "--cascade=foreground", "--timeout=60s")
	l.await(revision+" has ended", func() string {
		if n := len(l.pods(revision)); n > 0 {
			return fmt.Sprintf("%d Pods remain", n)
		}
		return ""
	})
}

// pods returns the running Pods of a revision of either program, and records which processes ended.
func (l *lab) pods(revision string) (pods []node.Pod) {
	pids := map[string]int{}
	for _, p := range l.Node.Pods() {
		if p.Namespace != home {
			continue
		}
		pids[p.Log] = p.PID
		if l.processes[p.Log] == nil {
			l.processes[p.Log] = &process{name: p.Name}
		}
		if strings.HasPrefix(p.Name, "pilot-"+revision+"-") || strings.HasPrefix(p.Name, "istiod-"+revision+"-") {
			pods = append(pods, p)
		}
	}
	for log, p := range l.processes {
		if p.pid != 0 && p.pid != pids[log] {
			p.ends = append(p.ends, time.Now())
		}
		p.pid = pids[log]
	}
	return pods
}

// await waits until a condition returns no objection.
func (l *lab) await(what string, objection func() string) {
	l.t.Helper()
	harness.Must(l.t, l.Await(l.t.Context(), what, func(context.Context) (bool, error) {
		if text := objection(); text != "" {
			return false, errors.New(text)
		}
		return true, nil
	}))
}

// spans returns the periods in which processes ran the work of elections.
func (l *lab) spans() (all []span) {
	l.t.Helper()
	l.pods("")
	for log, p := range l.processes {
		ends := p.ends
		if p.pid != 0 {
			ends = append(slices.Clone(ends), time.Now())
		}
		found, err := readSpans(p.name, log, ends)
		harness.Must(l.t, err)
		all = append(all, found...)
	}
	return all
}

// leader returns the process that alone runs the work of an election, or "".
func (l *lab) leader(election string) (name string) {
	now := time.Now()
	for _, s := range l.spans() {
		if s.election != election || s.To.Before(now) {
			continue
		}
		if name != "" {
			return ""
		}
		name = s.process
	}
	return name
}

// awaitLeads waits until a revision alone runs the work of the shared elections.
func (l *lab) awaitLeads(revision string) {
	l.t.Helper()
	l.await(revision+" leads", func() string {
		for _, election := range shared {
			if name := l.leader(election); !slices.ContainsFunc(l.pods(revision), func(p node.Pod) bool { return p.Name == name }) {
				return fmt.Sprintf("%s is led by %q", election, name)
			}
		}
		return ""
	})
}

// kill ends the leader of the namespace election by SIGKILL. The node starts its process again.
func (l *lab) kill() {
	l.t.Helper()
	name := l.leader(shared[0])
	harness.Must(l.t, l.Node.Signal(home, name, syscall.SIGKILL))
	l.await(name+" has ended", func() string {
		p, err := l.Node.Pod(home, name)
		if err == nil && p.Restarts == 0 {
			return "no restart"
		}
		return ""
	})
}

// writers returns the accounts that wrote the status of Gateways in a namespace since a version.
func (l *lab) writers(namespace string, since uint64) (users []string) {
	l.t.Helper()
	h, err := l.History()
	harness.Must(l.t, err)
	for w := range h.All() {
		if w.Namespace == namespace && w.Resource == "gateways/status" && w.Version > since {
			users = append(users, strings.TrimPrefix(w.User, "system:serviceaccount:"+home+":"))
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// version returns the version of the last logged write.
func (l *lab) version() (last uint64) {
	h, err := l.History()
	harness.Must(l.t, err)
	for w := range h.All() {
		last = max(last, w.Version)
	}
	return last
}

// verdict judges the audit log. The late writes of istiod are counted, but are no violations.
func (l *lab) verdict(peers ...string) verdict.Verdict {
	l.t.Helper()
	v, err := l.Judge(func(c *verdict.Config) {
		incumbent := c.Revision
		c.Peers = peers
		c.Revision = func(user string) string {
			if revision, is := strings.CutPrefix(user, "system:serviceaccount:"+home+":istiod-"); is {
				return revision
			}
			return incumbent(user)
		}
	})
	harness.Must(l.t, err)
	return v
}

// keepLogs keeps the logs of the programs after a failure.
func (l *lab) keepLogs() {
	folder, err := os.MkdirTemp("", "istiod-logs-")
	if err != nil {
		l.t.Log(err)
		return
	}
	for log, p := range l.processes {
		if text, err := os.ReadFile(log); err == nil {
			_ = os.WriteFile(filepath.Join(folder, p.name+".log"), text, 0o600)
		}
	}
	l.t.Log("logs of the programs: ", folder)
}

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
