package diagnosis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
)

const home = "istio-system"

// plane is an installation: two elections, and pods that run.
type plane struct{ Input }

// newPlane returns a healthy installation: canary is the default revision, pilot-canary-1 leads, and each candidate has a witness.
func newPlane() *plane {
	p := &plane{Input{
		Tool: "electionctl", Namespace: home, Members: map[string]bool{home: true}, Pods: map[string][]corev1.Pod{home: {}},
		Tags: &Tags{Default: "canary"}, Claims: map[string][]tagging.Claim{home: {}}, Clock: &Clock{}, Ahead: map[string]time.Duration{},
		Locks: []inspect.Lock{}, Schemas: schemas("leader-election"), Levels: []flowcontrolv1.PriorityLevelConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "leader-election"}}}, Unread: map[string]error{},
		Spaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: home}}},
	}}
	for _, name := range []string{"istio-leader", "istio-namespace-controller-election"} {
		p.Elections = append(p.Elections, inspect.Election{
			Namespace: home, Name: name, Lock: inspect.Lease, State: inspect.Leads, Holder: "pilot-canary-1", Key: "canary", Revision: "canary",
			Program: "incumbent", Ranked: true, HandsOver: true, LeaseSeconds: 30,
		})
	}
	for _, name := range []string{"pilot-canary-1", "pilot-canary-2", "pilot-stable-1", "pilot-stable-2"} {
		p.start(name)
	}
	return p
}

func schemas(level string) []flowcontrolv1.FlowSchema {
	s := flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "renewals"}}
	s.Spec.PriorityLevelConfiguration.Name = level
	s.Spec.Rules = []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects:      []flowcontrolv1.Subject{{ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: home, Name: "*"}}},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}}},
	}}
	return []flowcontrolv1.FlowSchema{s}
}

// start adds a running pod that is a candidate of all elections.
func (p *plane) start(name string) {
	revision := strings.Split(name, "-")[1]
	p.Pods[home] = append(p.Pods[home], corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: home, UID: types.UID(name), Labels: map[string]string{tagging.Label: revision}},
		Spec:       corev1.PodSpec{ServiceAccountName: "pilot-" + revision, Containers: []corev1.Container{{Name: "discovery"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "discovery", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}},
	})
	for i, e := range p.Elections {
		c := inspect.Candidate{Namespace: home, Election: e.Name, Identity: name, PodUID: name, Key: revision, Warm: true, Fit: true, Witness: "parent"}
		p.Elections[i].Candidates = append(p.Elections[i].Candidates, c)
		p.Candidates = append(p.Candidates, c)
	}
}

// candidates changes the candidates whose names begin with a prefix.
func (p *plane) candidates(prefix string, change func(*inspect.Candidate)) {
	for i := range p.Candidates {
		if strings.HasPrefix(p.Candidates[i].Identity, prefix) {
			change(&p.Candidates[i])
		}
	}
	for _, e := range p.Elections {
		for i := range e.Candidates {
			if strings.HasPrefix(e.Candidates[i].Identity, prefix) {
				change(&e.Candidates[i])
			}
		}
	}
}

// elections changes the elections.
func (p *plane) elections(change func(*inspect.Election)) {
	for i := range p.Elections {
		change(&p.Elections[i])
	}
}

// free releases all locks.
func (p *plane) free() {
	p.elections(func(e *inspect.Election) {
		e.State, e.Holder, e.Key, e.Revision = inspect.Free, "", "", ""
	})
}

// crash makes the pods with the prefix crash. Their member Leases are not late yet.
func (p *plane) crash(prefix string) {
	for i := range p.Pods[home] {
		if pod := &p.Pods[home][i]; strings.HasPrefix(pod.Name, prefix) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "discovery", RestartCount: 7, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 2, Reason: "Error", Message: "starting\npilot: unknown flag --leese-duration\n",
				}},
			}}
		}
	}
}

func (p *plane) fence(helm bool, accounts ...string) {
	d := fence.Declaration{Namespace: home, Lock: "lease", ServiceAccounts: accounts}
	repair := "electionctl fence install -n istio-system --set release --stored"
	if helm {
		repair = "helm upgrade canary pilot --namespace istio-system --reset-then-reuse-values"
	}
	f := &Fence{Sets: []install.Discovered{{Name: "release", Repair: repair}}, Bindings: map[string]admissionv1.ValidatingAdmissionPolicyBinding{}}
	for _, e := range p.Elections {
		d.Election = e.Name
		f.Sets[0].Declarations = append(f.Sets[0].Declarations, d)
	}
	p.Fence = f
}

// TestEmergencies shows each emergency to doctor and explain. explain prints the same findings, without those about other objects.
func TestEmergencies(t *testing.T) {
	const both = "istio-system/istio-leader and istio-system/istio-namespace-controller-election"
	const crashed = "CrashLoopBackOff: container discovery ended with exit code 2 (Error): pilot: unknown flag --leese-duration"
	const forbidden = `leases.coordination.k8s.io "istio-leader" is forbidden: User "system:serviceaccount:istio-system:pilot-canary" cannot update resource "leases"`
	for name, c := range map[string]struct {
		breaks func(p *plane)
		doctor string
		// explain is the first line for istio-leader. It is the line of doctor if empty.
		explain, command string
	}{
		"healthy": {func(*plane) {}, "", "", ""},
		"every replica crashes": {
			func(p *plane) { p.free(); p.crash("pilot-") },
			both + " have no leader: 4 of 4 pods of revision canary, stable do not run: " + crashed, "",
			"kubectl -n istio-system logs pilot-canary-1 -c discovery --previous",
		},
		"the default revision crashes": {
			func(p *plane) {
				p.crash("pilot-canary")
				p.elections(func(e *inspect.Election) { e.Holder, e.Key, e.Revision = "pilot-stable-1", "stable", "stable" })
			},
			both + " do not have the default revision canary, which no live process runs: 2 of 2 pods of revision canary do not run: " + crashed, "",
			"kubectl -n istio-system logs pilot-canary-1 -c discovery --previous",
		},
		"rights on the locks revoked": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-canary", func(c *inspect.Candidate) { c.Refused = forbidden })
			},
			"istio-system/istio-leader has no leader: the API server rejects pilot-canary-1 as holder: " + forbidden, "",
			"kubectl -n istio-system auth can-i update lease/istio-leader --as system:serviceaccount:istio-system:pilot-canary",
		},
		"rights revoked, the leader still leads": {
			func(p *plane) {
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) { c.Refused = forbidden })
			},
			"istio-system/istio-leader will lose the leader: the API server rejects pilot-canary-1 as holder: " + forbidden, "",
			"kubectl -n istio-system auth can-i update lease/istio-leader --as system:serviceaccount:istio-system:pilot-canary",
		},
		"fence for a missing account": {
			func(p *plane) { p.free(); p.fence(false, "istio-system/piolt") },
			both + " have no leader: the fence release names istio-system/piolt and not the service accounts of the pods (istio-system/pilot-canary, istio-system/pilot-stable), so the API server rejects them as holders", "",
			"electionctl fence remove --set release",
		},
		"fence for a missing account, by Helm": {
			func(p *plane) { p.free(); p.fence(true, "istio-system/piolt") },
			both + " have no leader: the fence release names istio-system/piolt and not the service accounts of the pods (istio-system/pilot-canary, istio-system/pilot-stable), so the API server rejects them as holders", "",
			"helm upgrade canary pilot --namespace istio-system --reset-then-reuse-values --set fence.mode=none",
		},
		"hold of a stranger": {
			func(p *plane) {
				p.Elections[0].Obstacles = []inspect.Obstacle{{Annotation: "incumbent.dev/hold", Effect: "pause by eve: for 7d no candidate can take the lock by rank", Remove: "electionctl -n istio-system resume istio-leader"}}
			},
			"istio-system/istio-leader: incumbent.dev/hold: pause by eve: for 7d no candidate can take the lock by rank", "",
			"electionctl -n istio-system resume istio-leader",
		},
		"socket without a witness": {
			func(p *plane) {
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Witness = inspect.UnreachableWitness })
			},
			"the witness of pilot-canary-1, pilot-canary-2, pilot-stable-1 and 1 others does not respond; after a crash of the leader's process, followers wait for its lease", none,
			"kubectl -n istio-system logs pilot-canary-1 --all-containers",
		},
		"second claim of the default tag": {
			func(p *plane) {
				p.Claims[home] = []tagging.Claim{
					{Tag: "default", Revision: "canary", Kind: tagging.WebhookKind, Name: tagging.DefaultTagWebhook("")},
					{Tag: "default", Revision: "stable", Kind: tagging.ServiceKind, Namespace: home, Name: "istiod"},
				}
			},
			"tag default is claimed by several revisions: revision canary (MutatingWebhookConfiguration istio-revision-tag-default) counts, stable (Service istiod) does not", none,
			"kubectl --namespace istio-system label service istiod istio.io/tag-",
		},
		"renewals have the priority of nothing": {
			func(p *plane) { p.Schemas = schemas("nothing") },
			"renewals of service account istio-system/pilot-canary have FlowSchema renewals, whose priority level nothing does not exist", none,
			"kubectl delete flowschema renewals",
		},
		"too many requests": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) {
					c.Refused = "the server has received too many requests and has asked us to try again later"
				})
			},
			both + " have no leader: the API server rejects pilot-canary-1 as holder: the server has received too many requests and has asked us to try again later", "",
			"kubectl get flowschemas,prioritylevelconfigurations",
		},
		"a webhook denies the lock": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) {
					c.Refused = `admission webhook "deny.example.com" denied the request: no`
				})
			},
			both + ` have no leader: the API server rejects pilot-canary-1 as holder: admission webhook "deny.example.com" denied the request: no`, "",
			"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name",
		},
		"clock ahead": {
			func(p *plane) { p.Ahead["pilot-canary-1"] = 10 * time.Minute },
			"the clock of pilot-canary-1 is 10m0s ahead of the API server", none, "",
		},
		"the lock is deleted again and again": {
			func(p *plane) { p.Deletions = map[string]int{home + "/istio-leader": 42} },
			"istio-system/istio-leader loses its leaders: the lock was deleted under a leader 42 times in the last 10 minutes", "",
			"electionctl history -n istio-system istio-leader",
		},
		"namespace is being deleted": {
			func(p *plane) {
				p.free()
				now := metav1.Now()
				p.Spaces[0].DeletionTimestamp = &now
				p.Spaces[0].Status.Phase = corev1.NamespaceTerminating
				p.Spaces[0].Status.Conditions = []corev1.NamespaceCondition{
					{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances"},
				}
			},
			both + " have no leader: namespace istio-system is being deleted (Terminating): Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances", "",
			"kubectl get namespace istio-system -o yaml",
		},
		"60 replicas": {
			func(p *plane) {
				p.free()
				for i := range 56 {
					p.start(fmt.Sprintf("pilot-stable-%d", i+10))
				}
				p.candidates("pilot-stable", func(c *inspect.Candidate) { c.Warm = false })
				p.candidates("pilot-canary", func(c *inspect.Candidate) { c.Fit = false })
			},
			both + " have no leader: free; candidates: 2 of canary (unfit), 58 of stable (not warm)", "",
			"kubectl -n istio-system logs pilot-stable-1",
		},
		"the coordinator is gone": {
			func(p *plane) {
				p.elections(func(e *inspect.Election) { e.Uncoordinated = "no coordinator has written for three leases" })
			},
			both + " are not coordinated, although candidates request it: no coordinator has written for three leases", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane()
			c.breaks(p)
			p.MarkPods()
			findings := Findings(p.Input)
			first := findings[0]
			if c.doctor == "" { // healthy
				for _, f := range findings {
					if f.Severity == Problem || f.Severity == Warning {
						t.Errorf("%+v", f)
					}
				}
				return
			}
			if got := first.String(); got != c.doctor || first.Command != c.command || first.Severity == Well || first.Severity == Unknown {
				t.Errorf("doctor:\n%s\n→ %s, want\n%s\n→ %s", got, first.Command, c.doctor, c.command)
			}
			for _, word := range []string{" or ", " if ", " unless ", ";"} {
				if strings.Contains(first.Command, word) {
					t.Errorf("%q cannot be pasted", first.Command)
				}
			}
			explained := Of(p.Elections[0], findings)
			switch {
			case c.explain == none && len(explained) > 0:
				t.Errorf("explain: %+v", explained)
			case c.explain != none && (len(explained) == 0 || explained[0].Cause != first.Cause || explained[0].Command != c.command):
				t.Errorf("explain: %+v", explained)
			}
		})
	}
}

// none means that a finding is about no election.
const none = "none"
