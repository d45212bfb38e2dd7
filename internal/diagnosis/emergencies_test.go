package diagnosis

import (
	"fmt"
	"regexp"
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
	"incumbent.dev/incumbent/pilot/leaderelection"
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
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: home, UID: types.UID(name), Labels: map[string]string{tagging.Label: revision, "pod-template-hash": "abc"}, OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "pilot-" + revision + "-abc"}}},
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

const upgrade = "helm upgrade canary pilot --namespace istio-system --reset-then-reuse-values"

// helm installs the control plane by Helm.
func (p *plane) helm() {
	p.Releases = map[string]string{home + "/pilot-canary": upgrade, home + "/pilot-stable": strings.Replace(upgrade, "canary", "stable", 1)}
}

// starve gives the renewals a priority level without share.
func (p *plane) starve() {
	p.Schemas = schemas("nothing")
	p.Schemas[0].Spec.MatchingPrecedence = 100
	p.Levels[0].Name = "nothing"
	p.Levels[0].Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: new(int32)}
}

// delete deletes a lock again and again.
func (p *plane) delete() {
	p.Deletions = map[string]Deletions{home + "/istio-leader": {Count: 42, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
}

// coordinate lets all candidates request a coordinator, which does not act.
func (p *plane) coordinate(why string) {
	p.candidates("pilot-", func(c *inspect.Candidate) { c.Strategy, c.Uncoordinated = "incumbent.dev/DefaultRevision", why })
	p.elections(func(e *inspect.Election) { e.Uncoordinated = why })
}

// TestEmergencies shows each emergency to doctor and explain. explain prints the same findings, without those about other objects.
func TestEmergencies(t *testing.T) {
	const both = "istio-system/istio-leader and istio-system/istio-namespace-controller-election"
	const crashed = "CrashLoopBackOff: container discovery ended with exit code 2 (Error): pilot: unknown flag --leese-duration"
	const forbidden = `leases.coordination.k8s.io "istio-leader" is forbidden: User "system:serviceaccount:istio-system:pilot-canary" cannot update resource "leases"`
	const rights = "service account istio-system/pilot-canary has no permission to update leases in namespace istio-system"
	const role = "kubectl -n istio-system create role pilot-canary-locks --verb=get,list,watch,create,update --resource=leases.coordination.k8s.io --dry-run=client -o yaml | kubectl -n istio-system apply -f - && " +
		"kubectl -n istio-system create rolebinding pilot-canary-locks --role=pilot-canary-locks --serviceaccount=istio-system:pilot-canary --dry-run=client -o yaml | kubectl -n istio-system apply -f -"
	const many = "the server has received too many requests and has asked us to try again later"
	const nothing = "renewals of service account istio-system/pilot-canary have FlowSchema renewals, whose priority level nothing has no share of the API server's concurrency"
	const prioritize = `echo '{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"renewals-istio-system-pilot-canary"},` +
		`"spec":{"matchingPrecedence":99,"priorityLevelConfiguration":{"name":"leader-election"},"rules":[{"resourceRules":[{"apiGroups":["","coordination.k8s.io"],"namespaces":["istio-system"],"resources":["configmaps","leases"],"verbs":["*"]}],` +
		`"subjects":[{"kind":"ServiceAccount","serviceAccount":{"name":"pilot-canary","namespace":"istio-system"}}]}]}}' | kubectl apply -f -`
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
			both + " have no leader: " + rights, "", role,
		},
		"rights revoked, the leader still leads": {
			func(p *plane) {
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) { c.Refused = forbidden })
			},
			both + " will lose the leader: " + rights, "", role,
		},
		"rights revoked, by Helm": {
			func(p *plane) {
				p.free()
				p.helm()
				p.candidates("pilot-canary", func(c *inspect.Candidate) { c.Refused = forbidden })
			},
			both + " have no leader: " + rights, "", upgrade,
		},
		"rights revoked, member Leases too": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Late = true })
				p.Lacking = []Right{{"istio-system/pilot-canary", home + "/istio-leader"}, {"istio-system/pilot-canary", home + "/istio-namespace-controller-election"}}
			},
			both + " have no leader: " + rights, "", role,
		},
		"fence for a missing account": {
			func(p *plane) { p.free(); p.fence(false, "istio-system/piolt") },
			both + " have no leader: the fence release names istio-system/piolt and not the service accounts of the pods (istio-system/pilot-canary, istio-system/pilot-stable), so the API server rejects them as holders", "",
			"electionctl fence remove --set release",
		},
		"fence for a missing account, the leader still leads": {
			func(p *plane) {
				p.fence(false, "istio-system/piolt")
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) {
					c.Refused = "ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request"
				})
				p.Fence.Policies = []admissionv1.ValidatingAdmissionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}}
			},
			both + " will lose the leader: the fence release names istio-system/piolt and not the service accounts of the pods (istio-system/pilot-canary, istio-system/pilot-stable), so the API server rejects them as holders", "",
			"electionctl fence remove --set release",
		},
		"the policy that rejected a follower was removed": {
			func(p *plane) {
				p.fence(false, "istio-system/pilot-*")
				p.candidates("pilot-canary-2", func(c *inspect.Candidate) {
					c.Refused = "ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request"
				})
				p.Pods[home], p.Elections[0].Candidates, p.Elections[1].Candidates = p.Pods[home][:2], p.Elections[0].Candidates[:2], p.Elections[1].Candidates[:2]
			},
			"", "", "",
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
			both + " have no working witness: the configured witness of pilot-canary-1, pilot-canary-2, pilot-stable-1 and 1 others does not respond; after a crash of the leader's process, followers wait for its lease", "",
			"kubectl -n istio-system logs pilot-canary-1 --all-containers",
		},
		"socket without a container": {
			func(p *plane) {
				p.candidates("pilot-canary", func(c *inspect.Candidate) { c.Witness = inspect.UnreachableWitness })
				for i := range p.Pods[home] {
					p.Pods[home][i].Spec.Containers[0].Args = []string{"server", "--witness=socket", "--witness-socket=/run/w"}
				}
			},
			both + " have no working witness: container discovery of pilot-canary-1, pilot-canary-2 uses the witness socket /run/w, and no container of the pod serves it; after a crash of the leader's process, followers wait for its lease", "",
			`kubectl -n istio-system patch deployment pilot-canary --type=json -p '[{"op":"test","path":"/spec/template/spec/containers/0/args/2","value":"--witness-socket=/run/w"},` +
				`{"op":"replace","path":"/spec/template/spec/containers/0/args/1","value":"--witness=parent"},{"op":"remove","path":"/spec/template/spec/containers/0/args/2"}]'`,
		},
		"witness in a container crashes": {
			func(p *plane) {
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) { c.Witness = inspect.UnreachableWitness })
				p.Pods[home][0].Spec.InitContainers = []corev1.Container{{Name: "witness", Args: []string{"witness", "--socket=/run/w"}}}
			},
			both + " have no working witness: container witness of pilot-canary-1 does not serve the socket; after a crash of the leader's process, followers wait for its lease", "",
			"kubectl -n istio-system logs pilot-canary-1 -c witness",
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
			func(p *plane) { p.starve() },
			both + " can lose the leader: " + nothing, "", prioritize,
		},
		"renewals have the priority of nothing, no leader": {
			func(p *plane) {
				p.free()
				p.starve()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Late = true })
			},
			both + " have no leader: " + nothing, "", prioritize,
		},
		"rights restored": {
			func(p *plane) {
				p.candidates("pilot-canary-2", func(c *inspect.Candidate) { c.Refused = forbidden })
				p.Granted = []Right{{"istio-system/pilot-canary", home + "/istio-leader"}, {"istio-system/pilot-canary", home + "/istio-namespace-controller-election"}}
				p.Pods[home], p.Elections[0].Candidates, p.Elections[1].Candidates = p.Pods[home][:2], p.Elections[0].Candidates[:2], p.Elections[1].Candidates[:2]
			},
			"", "", "",
		},
		"the locks are excluded from the webhook": {
			func(p *plane) {
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Refused = `admission webhook "deny.example.com" denied the request: no` })
				p.Webhooks = []Webhook{{Name: "deny.example.com", Conditions: []admissionv1.MatchCondition{{Name: notElectionLocks, Expression: `!(request.name in ["istio-leader", "istio-namespace-controller-election"])`}}}}
			},
			"", "", "",
		},
		"no webhook any more, and a follower remembers load": {
			func(p *plane) {
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Refused = `admission webhook "deny.example.com" denied the request: no` })
				p.candidates("pilot-canary-2", func(c *inspect.Candidate) { c.Refused = "Too many requests, please try again later." })
				p.Webhooks = []Webhook{}
			},
			"", "", "",
		},
		"a FlowSchema without its priority level has no effect": {
			func(p *plane) {
				p.Schemas = append(schemas("missing"), p.Schemas...)
				p.Schemas[0].Name, p.Schemas[0].Spec.MatchingPrecedence = "first", 1
			},
			"", "", "",
		},
		"too many requests": {
			func(p *plane) { p.free(); p.candidates("pilot-", func(c *inspect.Candidate) { c.Refused = many }) },
			both + " have no leader: the API server answers 429 (too many requests) to service account istio-system/pilot-canary: renewals of service account istio-system/pilot-canary have FlowSchema renewals, priority level leader-election", "",
			"kubectl get --raw /debug/api_priority_and_fairness/dump_priority_levels",
		},
		"too many requests, by a FlowSchema": {
			func(p *plane) {
				p.free()
				p.starve()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Refused = many })
			},
			both + " have no leader: the API server answers 429 (too many requests) to service account istio-system/pilot-canary: " + nothing, "", prioritize,
		},
		"a webhook denies the lock": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) {
					c.Refused = `admission webhook "deny.example.com" denied the request: no`
				})
				p.Webhooks = []Webhook{{Kind: "ValidatingWebhookConfiguration", Configuration: "strict", Index: 1, Name: "deny.example.com"}}
			},
			both + ` have no leader: webhook deny.example.com of ValidatingWebhookConfiguration strict rejects the holder of the lock: denied the request: no`, "",
			`kubectl patch validatingwebhookconfiguration strict --type=json -p '[{"op":"add","path":"/webhooks/1/matchConditions","value":[{"expression":` +
				`"!(request.namespace == \"istio-system\" && request.name in [\"istio-leader\", \"istio-namespace-controller-election\"])","name":"not-election-locks"}]}]'`,
		},
		"a webhook does not respond": {
			func(p *plane) {
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) {
					c.Refused = `failed calling webhook "deny.example.com": no endpoints available`
				})
				p.Webhooks = []Webhook{{Kind: "MutatingWebhookConfiguration", Configuration: "strict", Name: "deny.example.com", Conditions: []admissionv1.MatchCondition{{Name: "other"}}}}
			},
			both + ` will lose the leader: webhook deny.example.com of MutatingWebhookConfiguration strict rejects the holder of the lock: no endpoints available`, "",
			`kubectl patch mutatingwebhookconfiguration strict --type=json -p '[{"op":"add","path":"/webhooks/0/matchConditions/-","value":{"expression":` +
				`"!(request.namespace == \"istio-system\" && request.name in [\"istio-leader\", \"istio-namespace-controller-election\"])","name":"not-election-locks"}}]'`,
		},
		"clock ahead": {
			func(p *plane) { p.Ahead["pilot-canary-1"] = 10 * time.Minute },
			"the clock of pilot-canary-1 is 10m0s ahead of the API server", none, "",
		},
		"the lock is deleted again and again": {
			func(p *plane) { p.delete() },
			"istio-system/istio-leader loses its leaders: the lock lease/istio-leader was deleted under a leader 42 times since 2026-01-02T03:04:05Z", "",
			"electionctl fence install -n istio-system --mode deny --lock lease --service-account istio-system/pilot-canary,istio-system/pilot-stable --revisions canary,stable",
		},
		"the lock is deleted again and again, by Helm": {
			func(p *plane) { p.delete(); p.helm() },
			"istio-system/istio-leader loses its leaders: the lock lease/istio-leader was deleted under a leader 42 times since 2026-01-02T03:04:05Z", "",
			upgrade + " --set fence.mode=deny",
		},
		"the lock is deleted again and again, in spite of the fence": {
			func(p *plane) { p.delete(); p.fence(false, "istio-system/pilot-*") },
			"istio-system/istio-leader loses its leaders: the lock lease/istio-leader was deleted under a leader 42 times since 2026-01-02T03:04:05Z, by a user that may delete policies, because the fence admits it", "",
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
			func(p *plane) { p.coordinate(leaderelection.NoCoordinator) },
			both + " are not coordinated, although candidates request it: Lease istio-system/incumbent-coordinator does not exist, so no coordinator runs", "",
			"kubectl -n istio-system set env deployment/pilot-canary ENABLE_COORDINATOR=true",
		},
		"the coordinator is gone, by Helm": {
			func(p *plane) {
				p.coordinate(leaderelection.NoCoordinator)
				p.helm()
				p.Elections = append(p.Elections, inspect.Election{Namespace: home, Name: leaderelection.Coordinator, Lock: inspect.Lease, State: inspect.Free})
			},
			both + " are not coordinated, although candidates request it: Lease istio-system/incumbent-coordinator has no holder (free), so no coordinator runs", "",
			upgrade + " --set elections.coordinator=true",
		},
		"the coordinator does not act": {
			func(p *plane) {
				p.coordinate(leaderelection.NoCoordinator)
				p.Elections = append(p.Elections, inspect.Election{Namespace: home, Name: leaderelection.Coordinator, Lock: inspect.Lease, State: inspect.Leads, Holder: "pilot-stable-1"})
			},
			both + " are not coordinated, although candidates request it: no coordinator named a leader for three lease durations, although pilot-stable-1 holds Lease istio-system/incumbent-coordinator", "",
			"kubectl -n istio-system logs pilot-stable-1",
		},
		"no LeaseCandidates": {
			func(p *plane) { p.coordinate(leaderelection.Unserved) },
			both + " are not coordinated, although candidates request it: the API server does not serve LeaseCandidates", "", "",
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
			// A command fixes the problem. Otherwise the advice has the word Only, and the command shows the reason.
			if shows.MatchString(c.command) && !strings.Contains(first.Advice, "Only ") {
				t.Errorf("%q shows details, and the advice is %q", c.command, first.Advice)
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

// shows matches commands that change nothing.
var shows = regexp.MustCompile(` (logs|get|describe|history|explain|watch|verify) `)

// none means that a finding is about no election.
const none = "none"

// TestDoubtful_OwnRevision checks that the rights of another revision do not explain a free lock of one revision.
func TestDoubtful_OwnRevision(t *testing.T) {
	got := newPlane().Doubtful(inspect.Election{Namespace: home, Name: leaderelection.GatewayDeploymentController + "-stable", State: inspect.Free})
	if want := "istio-system/pilot-stable"; strings.Join(got, " ") != want {
		t.Errorf("accounts %v, want %s", got, want)
	}
}
