package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// method is the apply method of docs/upgrade.md.
const method = "--server-side=false"

// limit bounds one command line.
const limit = 2 * time.Minute

// cli runs the commands that people type, in a folder like the root of the repository.
type cli struct {
	place
	t      *testing.T
	folder string
}

// newCLI makes kubectl and helm available.
func newCLI(t *testing.T, p place) cli {
	t.Helper()
	folder := t.TempDir()
	self, err := os.Executable()
	harness.Must(t, err)
	deploy, err := filepath.Abs(filepath.Join("..", "..", "deploy"))
	harness.Must(t, err)
	for _, err := range []error{
		os.Symlink(deploy, filepath.Join(folder, "deploy")), os.Mkdir(filepath.Join(folder, "bin"), 0o700),
		os.Symlink(p.Kubectl(), filepath.Join(folder, "bin", "kubectl")),
		os.WriteFile(filepath.Join(folder, "bin", "helm"), []byte("#!/bin/sh\nexec "+self+` "$@"`+"\n"), 0o700),
	} {
		harness.Must(t, err)
	}
	return cli{p, t, folder}
}

// withElectionctl makes electionctl available. The first test builds it.
func (c cli) withElectionctl() cli {
	c.t.Helper()
	program := filepath.Join(c.Dir(), "electionctl")
	if _, err := os.Stat(program); err != nil {
		build(c.t, "electionctl", ".", program) // before the test runs in parallel
	}
	harness.Must(c.t, os.Symlink(program, filepath.Join(c.folder, "bin", "electionctl")))
	return c
}

// run runs a command line and returns its output.
func (c cli) run(line string) string {
	c.t.Helper()
	out, err := c.try(line)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// runAll runs the indented commands of a text.
func (c cli) runAll(text string, want int) {
	c.t.Helper()
	lines := regexp.MustCompile(`(?m)^  (\S.*)$`).FindAllStringSubmatch(text, -1)
	if len(lines) != want {
		c.t.Errorf("%d commands, want %d, in\n%s", len(lines), want, text)
	}
	for _, line := range lines {
		c.run(line[1])
	}
}

func (c cli) try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), limit)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-ec", line)
	command.Dir = c.folder
	command.Env = append(environment,
		"PATH="+filepath.Join(c.folder, "bin")+":"+os.Getenv("PATH"), "HOME="+c.folder, "KUBECONFIG="+c.Kubeconfig(), "HELM_NAMESPACE="+c.namespace,
	)
	out, err := command.CombinedOutput()
	return string(out), err
}

// replicas and revision return the fields in the cluster.
func (c cli) replicas() int32 {
	c.t.Helper()
	d, err := c.kube.AppsV1().Deployments(c.namespace).Get(c.t.Context(), "pilot-stable", metav1.GetOptions{})
	harness.Must(c.t, err)
	return *d.Spec.Replicas
}

func (c cli) revision() string {
	c.t.Helper()
	hook, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(c.t.Context(), tagging.DefaultTagWebhook(c.namespace), metav1.GetOptions{})
	harness.Must(c.t, err)
	return hook.Labels["istio.io/rev"]
}

// autoscale writes the number of replicas as the controller of HorizontalPodAutoscalers does.
func (c cli) autoscale(replicas int32) {
	c.t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "pilot-stable", Namespace: c.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	_, err := c.kube.AppsV1().Deployments(c.namespace).UpdateScale(c.t.Context(), "pilot-stable", scale, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
	harness.Must(c.t, err)
}

// The commands of the notes work as printed.
func TestNotes_Commands(t *testing.T) {
	t.Parallel()
	c := newCLI(t, newPlace(t))
	for _, file := range []string{"root-cert.pem", "kubeconfig"} {
		harness.Must(t, os.WriteFile(filepath.Join(c.folder, file), []byte("content"), 0o600))
	}
	notes := c.run("helm install stable deploy/charts/pilot --set image=pilot,fence.mode=none,caBundle.configMap=istio-ca,remoteKubeconfigSecret=remote")
	for _, want := range []string{"wait for ConfigMap istio-ca with the key root-cert.pem.", "wait for Secret remote with the key kubeconfig.", "controllers for Gateways wait until the API server serves Gateway API 1.5"} {
		if !strings.Contains(notes, want) {
			t.Errorf("missing %q in\n%s", want, notes)
		}
	}
	notes, _, _ = strings.Cut(notes, "To make this revision the default") // TestInstall_BothRevisions runs these commands
	c.runAll(notes, 4)
	if replicas := c.replicas(); replicas != 2 {
		t.Errorf("%d replicas", replicas)
	}
}

// fields is a model of the fields that people change. No release of the chart pilot has the number of replicas. The release tags has
// the label of each of its revisions, and the release stable has a number of revisions.
type fields struct {
	cli
	want      int32
	rev       string
	pilots    int
	defaults  []string
	revisions int
}

// next returns a revision that is not the default.
func (f *fields) next() string {
	f.revisions++
	return "r" + strconv.Itoa(f.revisions)
}

// check compares the cluster with the model.
func (f *fields) check(after ...string) {
	f.t.Helper()
	if replicas, revision := f.replicas(), f.revision(); replicas != f.want || revision != f.rev {
		f.t.Fatalf("after %q: %d replicas and default %s, want %d and %s", after, replicas, revision, f.want, f.rev)
	}
}

const (
	pilotChart = " stable deploy/charts/pilot --set image=pilot,caBundle.file=/ca.pem,fence.mode=none,gatewayAPI.enabled=false"
	tagsChart  = " tags deploy/charts/tags --set default="
)

// both runs commands of the two releases concurrently.
func (f *fields) both(pilot, tags string) { f.run(pilot + " & " + tags + "; wait $!") }

func (f *fields) install() {
	f.want = 1
	f.rev = f.next()
	f.both("helm install"+pilotChart+" "+method, "helm install"+tagsChart+f.rev+" "+method)
	f.pilots = 1
	f.defaults = []string{f.rev}
}

func (f *fields) upgrade() {
	f.rev = f.next()
	f.both("helm upgrade"+pilotChart, "helm upgrade"+tagsChart+f.rev)
	f.pilots++
	f.defaults = append(f.defaults, f.rev)
}

func (f *fields) rollback() {
	if f.pilots == 1 {
		f.upgrade() // a rollback needs an earlier revision
	}
	f.both("helm rollback stable", "helm rollback tags")
	f.rev = f.defaults[len(f.defaults)-2]
	f.defaults = append(f.defaults, f.rev)
}

func (f *fields) uninstall() {
	f.both("helm uninstall stable", "helm uninstall tags")
	f.install()
}

func (f *fields) scale() {
	f.want++
	f.run("kubectl -n " + f.namespace + " scale deployment pilot-stable --replicas=" + strconv.Itoa(int(f.want)))
}

func (f *fields) label() {
	f.rev = f.next()
	f.run("kubectl label --overwrite mutatingwebhookconfiguration " + tagging.DefaultTagWebhook(f.namespace) + " istio.io/rev=" + f.rev)
}

func (f *fields) set() string {
	f.rev = f.next()
	return f.run("electionctl -n " + f.namespace + " default set --yes " + f.rev)
}

var printedHelm = regexp.MustCompile(`helm upgrade .*`)

// setAndUpgrade runs the command that electionctl prints.
func (f *fields) setAndUpgrade() {
	line := printedHelm.FindString(f.set())
	if line == "" {
		f.t.Fatal("electionctl default set prints no helm upgrade")
	}
	f.run(line)
	f.defaults = append(f.defaults, f.rev)
}

// everyPair returns a sequence with each ordered pair of n numbers next to each other.
func everyPair(n int) (sequence []int) {
	for i := range n {
		sequence = append(sequence, i)
		for j := i + 1; j < n; j++ {
			sequence = append(sequence, i, j)
		}
	}
	return append(sequence, 0)
}

// Helm works after each pair of changes by people and by Helm. It sets the fields of its values and keeps the others.
func TestFields_EveryOrderOfTwo(t *testing.T) {
	f := &fields{cli: newCLI(t, newPlace(t)).withElectionctl()}
	t.Parallel()
	f.install()
	changes := []struct {
		name string
		do   func()
	}{
		{"scale", f.scale}, {"label", f.label}, {"set", func() { f.set() }}, {"set and upgrade", f.setAndUpgrade},
		{"upgrade", f.upgrade}, {"rollback", f.rollback}, {"uninstall", f.uninstall},
	}
	var done []string
	for _, i := range everyPair(len(changes)) {
		done = append(done, changes[i].name)
		changes[i].do()
		f.check(done...)
	}
	d := "kubectl -n " + f.namespace + " %s deployment pilot-stable"
	f.run(fmt.Sprintf(d, "set image") + " pilot=other && " + fmt.Sprintf(d, "rollout restart"))
	f.upgrade()
	if out := f.run(fmt.Sprintf(d, "get") + " -o yaml"); !strings.Contains(out, "image: pilot\n") || !strings.Contains(out, "restartedAt") {
		t.Errorf("after set image and rollout restart: %s", out)
	}
}

// With Helm's default method, the release takes over one change by kubectl with the documented flag, and then works as above.
func TestFields_ServerSideApply(t *testing.T) {
	f := &fields{cli: newCLI(t, newPlace(t)).withElectionctl()}
	t.Parallel()
	f.want = 1
	f.both("helm install"+pilotChart, "helm install"+tagsChart+"a")
	f.scale()
	f.upgrade()
	f.check("scale")
	f.want = 7
	f.autoscale(7)
	f.set()
	f.upgrade()
	f.check("the autoscaler and set")
	f.label()
	f.rev = f.next()
	if out, err := f.try("helm upgrade" + tagsChart + f.rev); err == nil || !strings.Contains(out, "conflict") {
		t.Fatalf("upgrade after label: %v\n%s", err, out)
	}
	f.run("helm upgrade" + tagsChart + f.rev + " " + method)
	f.check("the documented flag")
	f.run("helm upgrade" + tagsChart + f.next() + " --server-side=true")
	f.label()
	if out, err := f.try("helm rollback tags 1"); err == nil || !strings.Contains(out, "conflict") {
		t.Fatalf("rollback after label: %v\n%s", err, out)
	}
	f.run("helm rollback tags 1 " + method)
	f.rev = "a"
	f.check("rollback with the documented flag")
	f.label()
	f.upgrade()
	f.check("label")
}

// Enabling an autoscaler never resets the number of replicas.
func TestFields_Autoscaling(t *testing.T) {
	t.Parallel()
	const scaled = " --set autoscaling.enabled=true,resources.requests.cpu=100m"
	for name, install := range map[string]struct {
		args, method string
		replicas     int32
	}{"enabled later": {"", method, 1}, "enabled": {scaled, method, 1}, "server-side apply": {scaled, "", 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t, newPlace(t))
			c.run("helm install" + pilotChart + install.args + " " + install.method)
			if got := c.replicas(); got != install.replicas {
				t.Errorf("install: %d replicas", got)
			}
			for i, args := range []string{scaled, scaled, "", scaled} {
				want := int32(4 + i)
				c.autoscale(want)
				c.run("helm upgrade" + pilotChart + args)
				if got := c.replicas(); got != want {
					t.Errorf("upgrade %q: %d replicas, want %d", args, got, want)
				}
			}
		})
	}
}

// No release contains a lock, and none changes or deletes the lock of the servers.
func TestFields_FenceModes(t *testing.T) {
	t.Parallel()
	const name = "istio-gateway-deployment-stable"
	const release = " stable deploy/charts/pilot --set image=pilot,caBundle.file=/ca.pem,fence.mode="
	modes := []string{"deny", "audit", "warn", "none"}
	for mode, changes := range map[string][]int{"audit": {0}, "deny": {0, 1, 0, 2, 0, 3, 0}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cli := newCLI(t, newPlace(t))
			leases := cli.kube.CoordinationV1().Leases(cli.namespace)
			cli.run("helm install" + release + mode + " " + method)
			if list, err := leases.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
				t.Errorf("the chart created Leases: %v (%v)", list, err)
			}
			holder := "pilot-stable-0"
			lock := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
			if _, err := leases.Create(t.Context(), lock, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			before, err := leases.Get(t.Context(), name, metav1.GetOptions{})
			harness.Must(t, err)
			for _, i := range changes {
				cli.run("helm upgrade" + release + modes[i])
				after, err := leases.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil || after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
					t.Fatalf("changed to %s: the lock is %s@%s, want %s@%s (%v)", modes[i], after.UID, after.ResourceVersion, before.UID, before.ResourceVersion, err)
				}
			}
			cli.run("helm uninstall stable")
			if _, err := leases.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Errorf("uninstalling deleted the lock: %v", err)
			}
		})
	}
}
