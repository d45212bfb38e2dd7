package operate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/prometheus"
	"incumbent.dev/incumbent/tests/cluster/node"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

const (
	root = "../.."
	// watched is the election that the tests look at.
	watched   = rollout.NamespaceElection
	recordKey = "control-plane.alpha.kubernetes.io/leader"
)

// plane is a control plane with two replicas of each revision.
type plane struct {
	*rollout.Rollout
	t *testing.T
	// namespace is the namespace of the control plane.
	namespace  string
	folder     string
	prometheus *alerts
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	p := startCluster(t)
	p.must(p.Apply(t.Context(), rollout.Release{Revision: "stable", Replicas: 2}))
	p.must(p.Flip(t.Context(), "stable"))
	p.must(p.Apply(t.Context(), rollout.Release{Revision: "canary", Replicas: 2}))
	p.must(p.AwaitReady(t.Context(), "stable", 2))
	p.must(p.AwaitReady(t.Context(), "canary", 2))
	if prometheus.Installed(t, "prometheus") == "" {
		t.Log("no prometheus: the alerts are not checked")
		return p
	}
	p.prometheus = startPrometheus(t, p, p.rules(p.namespace, "gatewayAPI.enabled=true"))
	return p
}

// startCluster builds the programs and starts a cluster without a control plane.
func startCluster(t *testing.T) *plane {
	t.Helper()
	folder := t.TempDir()
	options := rollout.Options{WithoutGateways: true, LeaseCandidates: true, Lease: lease, Renew: 8 * time.Second, Retry: time.Second}
	p := &plane{t: t, namespace: rollout.Namespace, folder: folder}
	p.must(options.Build(t.Context(), root, folder))
	p.must(options.BuildElectionctl(t.Context(), root, folder))
	var err error
	p.Rollout, err = rollout.Start(t.Context(), options)
	t.Cleanup(func() {
		if err := p.End(); err != nil {
			t.Error(err)
		}
	})
	p.must(err)
	return p
}

// values returns the flags of Helm for a release with values.
func (p *plane) values(values string) string {
	const common = "image=pilot,replicas=1,address=$(POD_IP):15014,debugAddress=$(POD_IP):15016,gatewayAPI.enabled=false,fence.mode=none"
	return fmt.Sprintf("--set='%s,caBundle.file=%s' --set='%s'", common, p.BundleFile(), values)
}

// install installs a release in a namespace.
func (p *plane) install(namespace, revision, values string) {
	p.t.Helper()
	p.do(fmt.Sprintf("helm -n %s install %s deploy/charts/pilot --create-namespace --server-side=false %s", namespace, revision, p.values(values)))
}

func (p *plane) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// run runs a command line with the programs of this test, and returns its output with stable names.
func (p *plane) run(line string) string {
	p.t.Helper()
	out, _ := p.Shell(p.t.Context(), p.folder, line).CombinedOutput() // the exit code is in the output of the callers that need it
	return steady(string(out))
}

// electionctl returns a function that runs a command of electionctl.
func (p *plane) electionctl(command string) func() string {
	return func() string { return p.run("electionctl -n " + p.namespace + " " + command) }
}

// do runs a command line that must succeed.
func (p *plane) do(line string) {
	p.t.Helper()
	if out := p.run(line + " || echo exit $?"); strings.Contains(out, "exit ") {
		p.t.Fatalf("%s: %s", line, out)
	}
}

// apply creates objects from YAML.
func (p *plane) apply(objects string) {
	p.t.Helper()
	p.do("kubectl apply -f - <<'EOF'\n" + objects + "EOF\n")
}

// starving gives all requests of the control plane a priority level without a share.
const starving = `apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: nothing}
spec: {type: Limited, limited: {nominalConcurrencyShares: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: cheap}
spec:
  priorityLevelConfiguration: {name: nothing}
  matchingPrecedence: 50
  rules:
  - subjects: [{kind: Group, group: {name: "system:serviceaccounts:istio-system"}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"], clusterScope: true}]
`

// webhook sends updates of ConfigMaps in a namespace to a webhook.
const webhook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
- name: guard.example.com
  clientConfig: {caBundle: %s, url: %q}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
`

// review lets a webhook decide about updates of ConfigMaps. It denies an update with the reason that decide returns.
func (p *plane) review(decide func(ctx context.Context) (denied string)) {
	p.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if json.NewDecoder(r.Body).Decode(&review) != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		denied := decide(r.Context())
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: denied == "", Result: &metav1.Status{Message: denied}}
		_ = json.NewEncoder(w).Encode(review) // an error means that the API server does not wait any more
	}))
	p.t.Cleanup(server.Close)
	p.t.Cleanup(server.CloseClientConnections)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p.apply(fmt.Sprintf(webhook, base64.StdEncoding.EncodeToString(authority), server.URL, p.namespace))
}

// crash adds an unknown flag to the processes of a revision, and replaces all of them.
func (p *plane) crash(revision string) {
	p.t.Helper()
	p.do("kubectl -n istio-system patch deployment pilot-" + revision + ` --type=json -p '[{"op":"replace","path":"/spec/strategy","value":{"type":"Recreate"}},` +
		`{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--leese-duration=1s"}]'`)
}

var (
	pods   = regexp.MustCompile(`pilot-(stable|canary)-[a-z0-9]+-[a-z0-9]+`)
	ages   = regexp.MustCompile(`\b\d+(s|m\d+s|m) ago`)
	tags   = regexp.MustCompile(`<[^>]*>`)
	spaces = regexp.MustCompile(`[ \t\n]+`)
)

// steady replaces what differs between runs.
func steady(s string) string {
	return spaces.ReplaceAllString(ages.ReplaceAllString(pods.ReplaceAllString(s, "pilot-$1-X"), "20s ago"), " ")
}

// page returns the row of the watched election on the page of a replica, with the heading of its group and its notes, as text.
func (p *plane) page() string {
	for _, pod := range p.Node.Pods() {
		if pod.Namespace != p.namespace || !pod.Ready || pod.PID == 0 || stopped(pod) {
			continue
		}
		if status, text := harness.Page(p.t, pod.Address+":15016", "/debug/elections"); status == 200 {
			before, row, _ := strings.Cut(text, `>`+watched+`<`)
			_, heading, _ := strings.Cut(before[max(0, strings.LastIndex(before, `class="group`)):], ">")
			heading, _, _ = strings.Cut(heading, "</tr>")
			row, _, _ = strings.Cut(row, "</tbody>")
			row, _, _ = strings.Cut(row, `class="row `)
			return steady(html.UnescapeString(tags.ReplaceAllString(heading+"<"+row, " ")))
		}
	}
	return none
}

// stopped reports whether the process of a Pod is stopped.
func stopped(pod node.Pod) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pod.PID), "status"))
	return err != nil || strings.Contains(string(text), "\nState:\tT")
}

// record returns the record of the watched lock.
func (p *plane) record() (record string) {
	p.t.Helper()
	harness.Until(p.t, "the lock is read", func() bool {
		lock, err := p.Kube.CoreV1().ConfigMaps(p.namespace).Get(p.t.Context(), watched, metav1.GetOptions{})
		if err == nil {
			record = lock.Annotations[recordKey]
		}
		return err == nil
	})
	return record
}

// setRecord writes the record of the watched lock.
func (p *plane) setRecord(record string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{recordKey: record}}})
	if err != nil {
		return err
	}
	_, err = p.Kube.CoreV1().ConfigMaps(p.namespace).Patch(p.t.Context(), watched, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

var leaseField = regexp.MustCompile(`"leaseDurationSeconds":\d+`)

// setLease changes the lease duration in the record of the watched lock.
func (p *plane) setLease(d time.Duration) {
	p.t.Helper()
	p.must(p.setRecord(leaseField.ReplaceAllString(p.record(), fmt.Sprintf(`"leaseDurationSeconds":%d`, int(d.Seconds())))))
}

// leader returns the Pod of the leader.
func (p *plane) leader() node.Pod {
	p.t.Helper()
	var found node.Pod
	harness.Until(p.t, "a live leader", func() bool {
		record := p.record()
		for _, pod := range p.Node.Pods() {
			if pod.Namespace == p.namespace && strings.Contains(record, `"`+pod.Name+`"`) {
				found = pod
			}
		}
		return found.PID != 0
	})
	return found
}

// repeat runs a function every second until the returned function is called. The cluster ends the state that the function produces:
// candidates replace an unreadable record, and the node restarts a stopped process.
func (p *plane) repeat(f func()) (end func()) {
	ctx, stop := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for f(); apirequest.Pause(ctx, time.Second) == nil; f() {
		}
	})
	return func() {
		stop()
		running.Wait()
	}
}

// scale sets the replicas of both revisions and waits until no other Pod exists.
func (p *plane) scale(stable, canary int) {
	p.t.Helper()
	p.do(fmt.Sprintf("kubectl -n istio-system scale deployment/pilot-stable --replicas=%d", stable))
	p.do(fmt.Sprintf("kubectl -n istio-system scale deployment/pilot-canary --replicas=%d", canary))
	harness.Until(p.t, "the Pods ended", func() bool { return len(p.Node.Pods()) == stable+canary })
}

// term returns leaderTransitions of the watched lock.
func (p *plane) term() int {
	p.t.Helper()
	var record struct{ LeaderTransitions int }
	p.must(json.Unmarshal([]byte(p.record()), &record))
	return record.LeaderTransitions
}

// member creates the Lease of a process whose clock is ahead.
func (p *plane) member(ahead time.Duration) {
	p.t.Helper()
	state, err := json.Marshal(members.State{Revision: "stable", Cluster: members.Local, Version: "v1", Elections: []members.Election{{Name: watched, Candidate: true, Warm: true, Fit: true}}})
	p.must(err)
	identity, seconds, at := "pilot-ghost", int32(90), metav1.NewMicroTime(time.Now().Add(ahead))
	_, err = p.Kube.CoordinationV1().Leases(rollout.Namespace).Create(p.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: members.LeaseName(identity), Labels: map[string]string{members.Label: members.LabelValue}, Annotations: map[string]string{members.StateAnnotation: string(state)}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, AcquireTime: &at, RenewTime: &at},
	}, metav1.CreateOptions{FieldManager: "incumbent-member"})
	p.must(err)
}

// guards returns the names of the policies that guard the watched election.
func (p *plane) guards() (names []string) {
	p.t.Helper()
	policies, err := p.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(p.t.Context(), metav1.ListOptions{LabelSelector: fence.SetLabel})
	p.must(err)
	for _, policy := range policies.Items {
		if strings.Contains(strings.Join(fence.Locks(&policy), " "), watched) {
			names = append(names, policy.Name)
		}
	}
	return names
}

// bindAudit lets the policies that guard the watched election admit writes.
func (p *plane) bindAudit() {
	p.t.Helper()
	for _, name := range p.guards() {
		patch := []byte(`{"spec":{"validationActions":["Audit"]}}`)
		_, err := p.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Patch(p.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		p.must(err)
	}
}

// deletePolicies deletes the policies that guard the watched election, and their bindings.
func (p *plane) deletePolicies() {
	p.t.Helper()
	admission := p.Kube.AdmissionregistrationV1()
	for _, name := range p.guards() {
		p.must(admission.ValidatingAdmissionPolicyBindings().Delete(p.t.Context(), name, metav1.DeleteOptions{}))
		p.must(admission.ValidatingAdmissionPolicies().Delete(p.t.Context(), name, metav1.DeleteOptions{}))
	}
}

// repair runs each Helm command that doctor prints, as it is printed.
func (p *plane) repair() {
	p.t.Helper()
	p.do("electionctl -n istio-system doctor | sed -n 's/.*→ helm /helm /p' | bash -e")
}
