package diagnosis

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const home = "istio-system"

// plane is an installation: two elections, and pods that run.
type plane struct {
	Input
	// known is the default revision as the process of the page observes it.
	known k8sleaderelection.DefaultRevision
	// selfTest is the last result of the fence's self-test in this process.
	selfTest *fence.State
}

// newPlane returns a healthy installation: canary is the default revision, pilot-canary-1 leads, and each candidate has a witness.
func newPlane() *plane {
	p := &plane{Input: Input{
		Tool: "electionctl", Namespace: home, Pods: map[string][]corev1.Pod{home: {}},
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
	var all []fence.Declaration
	for _, e := range p.Elections {
		d.Election = e.Name
		all = append(all, d)
	}
	set, err := fence.Render("release", all...)
	if err != nil {
		panic(err)
	}
	p.Fence = &Fence{Sets: []install.Discovered{{Name: "release", Repair: repair, Declarations: all, Set: set}}, Bindings: map[string]admissionv1.ValidatingAdmissionPolicyBinding{}}
	for _, pair := range set.All() {
		p.Fence.Policies = append(p.Fence.Policies, *pair.Policy)
		p.Fence.Bindings[pair.Name()] = *pair.Binding
	}
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

// stop ends all pods and their member Leases. Their Deployments have a number of replicas and conditions.
func (p *plane) stop(replicas int32, conditions ...appsv1.DeploymentCondition) {
	p.free()
	p.Pods[home], p.Candidates = []corev1.Pod{}, nil
	p.elections(func(e *inspect.Election) { e.Candidates = nil })
	for _, revision := range []string{"stable", "canary"} {
		d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "pilot-" + revision}}
		d.Spec.Replicas, d.Spec.Template.Labels, d.Status.Conditions = &replicas, map[string]string{tagging.Label: revision}, conditions
		p.Deployments = append(p.Deployments, d)
	}
}

// keep ends the processes after the first ones.
func (p *plane) keep(n int) {
	p.Pods[home] = p.Pods[home][:n]
	p.elections(func(e *inspect.Election) { e.Candidates = e.Candidates[:n] })
}

// expire lets the leases expire.
func (p *plane) expire() {
	p.elections(func(e *inspect.Election) {
		e.State, e.Idle, e.Renewed = inspect.Expired, 40*time.Second, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	})
}

// terminate deletes the namespace, which has an object with a finalizer.
func (p *plane) terminate() {
	now := metav1.Now()
	p.Spaces[0].DeletionTimestamp = &now
	p.Spaces[0].Status.Phase = corev1.NamespaceTerminating
	p.Spaces[0].Status.Conditions = []corev1.NamespaceCondition{
		{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances"},
	}
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
	const exclusion = `"!(request.namespace == \"istio-system\" && (request.name in [\"istio-leader\", \"istio-namespace-controller-election\"] || request.name.startsWith(\"incumbent-member-\")))"`
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
			both + ": the default revision is canary, but no live process runs it: 2 of 2 pods of revision canary do not run: " + crashed, "",
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
				p.fence(false, "istio-system/pilot-canary", "istio-system/pilot-stable")
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
				p.Webhooks = []Webhook{{ValidatingWebhook: admissionv1.ValidatingWebhook{Name: "deny.example.com", MatchConditions: []admissionv1.MatchCondition{{Name: notElectionLocks, Expression: `!(request.name in ["istio-leader", "istio-namespace-controller-election"])`}}}}}
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
			"kubectl get --raw '/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1'",
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
				p.Webhooks = []Webhook{{"ValidatingWebhookConfiguration", "strict", 1, admissionv1.ValidatingWebhook{Name: "deny.example.com"}}}
			},
			both + ` have no leader: webhook deny.example.com of ValidatingWebhookConfiguration strict rejects the holder of the lock: denied the request: no`, "",
			`kubectl patch validatingwebhookconfiguration strict --type=json -p '[{"op":"add","path":"/webhooks/1/matchConditions","value":[{"expression":` + exclusion + `,"name":"not-election-locks"}]}]'`,
		},
		"a webhook does not respond": {
			func(p *plane) {
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) {
					c.Refused = `failed calling webhook "deny.example.com": no endpoints available`
				})
				p.Webhooks = []Webhook{{"MutatingWebhookConfiguration", "strict", 0, admissionv1.ValidatingWebhook{Name: "deny.example.com", MatchConditions: []admissionv1.MatchCondition{{Name: "other"}}}}}
			},
			both + ` will lose the leader: webhook deny.example.com of MutatingWebhookConfiguration strict rejects the holder of the lock: no endpoints available`, "",
			`kubectl patch mutatingwebhookconfiguration strict --type=json -p '[{"op":"add","path":"/webhooks/0/matchConditions/-","value":{"expression":` + exclusion + `,"name":"not-election-locks"}}]'`,
		},
		"clock ahead": {
			func(p *plane) { p.Ahead["pilot-canary-1"] = 10 * time.Minute },
			"the clock of pilot-canary-1 is 10m0s ahead of the API server", none, "",
		},
		"clock behind": {
			func(p *plane) { p.Ahead["pilot-canary-1"] = -10 * time.Minute },
			"the clock of pilot-canary-1 is 10m0s behind the API server", none, "",
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
			func(p *plane) { p.delete(); p.fence(false, "istio-system/pilot-canary", "istio-system/pilot-stable") },
			"istio-system/istio-leader loses its leaders: the lock lease/istio-leader was deleted under a leader 42 times since 2026-01-02T03:04:05Z, by a user that may delete policies, because the fence admits it", "",
			administrators,
		},
		"namespace is being deleted": {
			func(p *plane) {
				p.free()
				p.terminate()
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
			func(p *plane) { p.coordinate("the coordinator is absent") },
			both + " are not coordinated, although candidates request it: Lease istio-system/incumbent-coordinator does not exist, so no coordinator runs", "",
			"kubectl -n istio-system set env deployment/pilot-canary ENABLE_COORDINATOR=true",
		},
		"the coordinator is gone, by Helm": {
			func(p *plane) {
				p.coordinate("the coordinator is absent")
				p.helm()
				p.Elections = append(p.Elections, inspect.Election{Namespace: home, Name: leaderelection.Coordinator, Lock: inspect.Lease, State: inspect.Free})
			},
			both + " are not coordinated, although candidates request it: Lease istio-system/incumbent-coordinator has no holder (free), so no coordinator runs", "",
			upgrade + " --set elections.coordinator=true",
		},
		"the coordinator does not act": {
			func(p *plane) {
				p.coordinate(leaderelection.NoCoordinator)
				p.elections(func(e *inspect.Election) { e.Holder, e.Key, e.Revision = "pilot-stable-1", "stable", "stable" })
				p.Elections = append(p.Elections, inspect.Election{Namespace: home, Name: leaderelection.Coordinator, Lock: inspect.Lease, State: inspect.Leads, Holder: "pilot-stable-1"})
			},
			both + " are not coordinated, although candidates request it: no coordinator named a leader for three lease durations, although pilot-stable-1 holds Lease istio-system/incumbent-coordinator", "",
			"kubectl -n istio-system logs pilot-stable-1",
		},
		"the coordinator has nothing to change": {
			func(p *plane) {
				p.coordinate(leaderelection.NoCoordinator)
				p.Elections = append(p.Elections, inspect.Election{Namespace: home, Name: leaderelection.Coordinator, Lock: inspect.Lease, State: inspect.Leads, Holder: "pilot-stable-1"})
			},
			"", "", "",
		},
		"no LeaseCandidates": {
			func(p *plane) { p.coordinate(leaderelection.Unserved) },
			both + " are not coordinated, although candidates request it: the API server does not serve LeaseCandidates", "", "",
		},
		"all replicas at 0": {
			func(p *plane) { p.stop(0) },
			both + " have no leader: Deployment pilot-canary has 0 replicas", "", "kubectl -n istio-system scale deployment/pilot-canary --replicas=2",
		},
		"a quota rejects the pods": {
			func(p *plane) {
				p.stop(2, appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: `pods "pilot-canary-x" is forbidden: exceeded quota: few`})
			},
			both + ` have no leader: Deployment pilot-canary cannot create pods: pods "pilot-canary-x" is forbidden: exceeded quota: few`, "", "kubectl -n istio-system describe deployment pilot-canary",
		},
		"a quota rejects the lock": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Refused = "leases is forbidden: exceeded quota: few" })
			},
			both + " have no leader: the API server rejects pilot-canary-1 as holder: leases is forbidden: exceeded quota: few", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"default revision without pods": {
			func(p *plane) { p.Tags.Default = "ghost" },
			both + ": the default revision is ghost, but no live process runs it", "", "electionctl default set -n istio-system canary",
		},
		"processes of the default revision are late": {
			func(p *plane) {
				p.Tags.Default = "stable"
				p.candidates("pilot-stable", func(c *inspect.Candidate) { c.Late = true })
			},
			both + ": the default revision is stable, but no live process runs it", "", "electionctl default set -n istio-system canary",
		},
		"no default revision": {
			func(p *plane) { p.Tags.Default = "" },
			"no default revision: the first candidate leads, regardless of its revision", none, "",
		},
		"rights of the default revision revoked": {
			func(p *plane) {
				p.elections(func(e *inspect.Election) { e.Holder, e.Key, e.Revision = "pilot-stable-1", "stable", "stable" })
				p.candidates("pilot-canary", func(c *inspect.Candidate) { c.Refused = forbidden })
			},
			both + " have a candidate that cannot lead: " + rights, "", role,
		},
		"default revision unfit": {
			func(p *plane) {
				p.elections(func(e *inspect.Election) { e.Holder, e.Key, e.Revision = "pilot-stable-1", "stable", "stable" })
				p.candidates("pilot-canary", func(c *inspect.Candidate) { c.Fit = false })
			},
			both + " do not have the default revision canary: other candidates: pilot-canary-1 (unfit), pilot-canary-2 (unfit)", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"run functions do not return": {
			func(p *plane) {
				p.Elections[0].Request = &record.Request{Identity: "pilot-canary-2", Accepted: true}
			},
			"istio-system/istio-leader: pilot-canary-1 accepted a handover, and its run functions have not returned yet", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"no caches": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Warm = false })
			},
			both + " have no leader: free; candidates: pilot-canary-1 (not warm), pilot-canary-2 (not warm), pilot-stable-1 (not warm), pilot-stable-2 (not warm)", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"a rollout warms up": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Warm = false })
				p.Now = time.Now()
				for i := range p.Pods[home] {
					p.Pods[home][i].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(p.Now.Add(-maxWarmUp / 2))
				}
			},
			both + " have no leader: free; candidates: pilot-canary-1 (not warm), pilot-canary-2 (not warm), pilot-stable-1 (not warm), pilot-stable-2 (not warm)", "", "",
		},
		"record unreadable": {
			func(p *plane) {
				p.free()
				p.Elections[0].State, p.Elections[0].Problems = inspect.Unreadable, []string{"record of the lock is unreadable: EOF; candidates replace it after a lease duration"}
			},
			"istio-system/istio-leader has no leader: record of the lock is unreadable: EOF; candidates replace it after a lease duration", "", "electionctl watch -n istio-system istio-leader",
		},
		"another program holds the lock": {
			func(p *plane) {
				e := &p.Elections[0]
				e.State, e.Holder, e.Key, e.Revision, e.Program, e.HandsOver = inspect.Holds, "laptop", "", "", "", false
			},
			"istio-system/istio-leader has a holder of another program: laptop is neither a pod of the namespace nor a candidate with a member Lease", "",
			"electionctl explain -n istio-system istio-leader --observe 31s",
		},
		"locks of two types": {
			func(p *plane) {
				e := p.Elections[0]
				e.Lock, e.Holder = inspect.ConfigMap, "pilot-stable-1"
				p.Elections[0].Problems = []string{"the ConfigMap has the holder pilot-stable-1 and the Lease has the holder pilot-canary-1"}
				e.Problems = p.Elections[0].Problems
				p.Elections = append(p.Elections, e)
			},
			"istio-system/istio-leader: the ConfigMap has the holder pilot-stable-1 and the Lease has the holder pilot-canary-1", "", "electionctl explain -n istio-system istio-leader",
		},
		"slow API server": {
			func(p *plane) { p.free(); p.Clock.PossibleError = 5 * time.Second },
			both + " have no leader: the API server needs 10s for an answer, and leaders need answers within half of RenewDeadline", "", ready,
		},
		"policies of the fence deleted": {
			func(p *plane) {
				p.fence(true, "istio-system/pilot-canary", "istio-system/pilot-stable")
				p.Fence.Policies, p.Fence.Bindings, p.selfTest = nil, nil, &fence.State{Answer: fence.Admitted}
			},
			both + ": 3 policies of the fence release and their bindings are missing, for example POLICY: the writes of lease istio-system/istio-leader, lease istio-system/istio-namespace-controller-election are not guarded", "", upgrade,
		},
		"fence in audit": {
			func(p *plane) {
				p.selfTest = &fence.State{Answer: fence.Admitted}
				p.fence(true, "istio-system/pilot-canary", "istio-system/pilot-stable")
				for name, b := range p.Fence.Bindings {
					b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
					p.Fence.Bindings[name] = b
				}
			},
			both + ": the fence release has policies without the action Deny (3): the API server reports writes of non-leaders and admits them", "", upgrade + " --set fence.mode=deny",
		},
		"leader stopped, no other candidate": {
			func(p *plane) {
				p.expire()
				p.keep(1)
			},
			both + " have no leader: expired (renewed 40s ago); candidates: pilot-canary-1 (ready)", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"leader stopped, the others wait": {
			func(p *plane) { p.expire() },
			both + " have no leader: expired (renewed 40s ago); candidates: pilot-canary-1 (ready), pilot-canary-2 (ready), pilot-stable-1 (ready), pilot-stable-2 (ready)", "", "kubectl -n istio-system logs pilot-canary-2",
		},
		"pod of the leader deleted by force": {
			func(p *plane) { p.Pods[home] = p.Pods[home][1:] },
			both + " have no live leader: pod pilot-canary-1 does not exist; other candidates: pilot-canary-2 (ready), pilot-stable-1 (ready), pilot-stable-2 (ready)", "", "",
		},
		"only one candidate": {
			func(p *plane) { p.keep(1) },
			both + " have no candidate that can replace the leader: other candidates: none", "", "kubectl -n istio-system scale deployment/pilot-canary --replicas=2",
		},
		"the holder settles": {
			func(p *plane) {
				p.elections(func(e *inspect.Election) { e.State, e.Program = inspect.Holds, "" })
			},
			both + ": pilot-canary-1 holds the lock and does not act yet", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"the lock is being deleted": {
			func(p *plane) {
				p.Elections[0].Obstacles = []inspect.Obstacle{{Annotation: "metadata.finalizers", Effect: "the Lease is being deleted", Remove: "kubectl patch", Severe: true}}
			},
			"istio-system/istio-leader: metadata.finalizers: the Lease is being deleted", "", "kubectl patch",
		},
		"namespace is being deleted, the leader still leads": {
			func(p *plane) { p.terminate() },
			both + " will lose the leader: namespace istio-system is being deleted (Terminating): Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances", "",
			"kubectl get namespace istio-system -o yaml",
		},
		"a webhook rejects also the member Leases": {
			func(p *plane) {
				p.free()
				p.candidates("pilot-", func(c *inspect.Candidate) { c.Late = true })
				fail := admissionv1.Fail
				p.Webhooks = []Webhook{{"ValidatingWebhookConfiguration", "strict", 0, admissionv1.ValidatingWebhook{Name: "deny.example.com", FailurePolicy: &fail, Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.OperationAll}, Rule: admissionv1.Rule{APIGroups: []string{"*"}, Resources: []string{"leases"}},
				}}}}}
			},
			both + " have no leader: no candidate can renew its member Lease, and webhook deny.example.com of ValidatingWebhookConfiguration strict must admit each write of leases", "",
			`kubectl patch validatingwebhookconfiguration strict --type=json -p '[{"op":"add","path":"/webhooks/0/matchConditions","value":[{"expression":` + exclusion + `,"name":"not-election-locks"}]}]'`,
		},
		"no candidate acquires the lock": {
			func(p *plane) { p.free() },
			both + " have no leader: free; candidates: pilot-canary-1 (ready), pilot-canary-2 (ready), pilot-stable-1 (ready), pilot-stable-2 (ready)", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"cool-down after a step-down": {
			func(p *plane) {
				p.free()
				p.keep(1)
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) { c.BackingOff = true })
			},
			both + " have no leader: free; candidates: pilot-canary-1 (cooling down)", "", "",
		},
		"the leader stopped leading": {
			func(p *plane) {
				p.candidates("pilot-canary-1", func(c *inspect.Candidate) { c.BackingOff = true })
			},
			both + ": pilot-canary-1 holds the lock, but it stopped leading and does not campaign yet", "", "kubectl -n istio-system logs pilot-canary-1",
		},
		"no lock": {
			func(p *plane) { p.Elections = p.Elections[1:] },
			"istio-system/istio-leader has no lock: its candidate pilot-canary-1 does not create it", none, "kubectl -n istio-system logs pilot-canary-1",
		},
		"the other candidates are late": {
			func(p *plane) {
				p.keep(2)
				p.candidates("pilot-canary-2", func(c *inspect.Candidate) { c.Late = true })
			},
			both + " have no candidate that can replace the leader: other candidates: pilot-canary-2 (late)", "", "kubectl -n istio-system get deployments,pods",
		},
		"the default revision changed": {
			func(p *plane) { p.Tags.Default = "stable" },
			"the default revision is stable, but no leader has it", none, "electionctl plan -n istio-system --default-revision stable",
		},
		"no permission to read pods": {
			func(p *plane) {
				p.Pods, p.Unread["leaders"] = map[string][]corev1.Pod{}, errors.New("pods is forbidden")
			},
			"", "", "",
		},
		"nothing was read but locks": {
			func(p *plane) { p.Input = Input{Elections: p.Elections} },
			"", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane()
			c.breaks(p)
			p.MarkPods()
			if p.Tags != nil {
				p.known = k8sleaderelection.DefaultRevision{Synced: true, Revision: p.Tags.Default}
			}
			findings := Findings(p.Input)
			first := findings[0]
			p.compareViews(t, findings, slices.Contains(unobserved, name))
			if c.doctor == "" { // healthy
				for _, f := range findings {
					if f.Severity == Problem || f.Severity == Warning {
						t.Errorf("%+v", f)
					}
				}
				return
			}
			if got := first.String(); got != strings.ReplaceAll(c.doctor, "POLICY", p.policy()) || first.Command != c.command || first.Severity == Well || first.Severity == Unknown {
				t.Errorf("doctor:\n%s\n→ %s, want\n%s\n→ %s", got, first.Command, c.doctor, c.command)
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

// policy returns the name of the first policy that guards a lock.
func (p *plane) policy() string {
	if p.Fence == nil {
		return ""
	}
	return p.Fence.Sets[0].Set.Locks[0].Name()
}

// process returns an election as a follower observes it, which reads neither pods nor rights, policies, webhooks and Events.
func (p *plane) process(e inspect.Election) inspect.Election {
	e.Process = &inspect.Process{Fence: p.selfTest}
	if e.Request != nil {
		e.Process.HandoverWait = time.Minute
	}
	e.Process.Identity, e.Process.Acting = "pilot-stable-2", e.State == inspect.Leads || e.State == inspect.Holds && e.Program == ""
	return e
}

// compareViews compares what list, explain, doctor, its exit code and the page report.
func (p *plane) compareViews(t *testing.T, findings []Finding, unobserved bool) {
	t.Helper()
	ok := map[string]bool{}
	for _, f := range findings {
		ok[f.Check] = ok[f.Check] || f.Severity == Well
	}
	e := p.Elections[0]
	explained := Of(e, findings)
	observed := OfProcess(p.process(e), p.known)
	for _, f := range slices.Concat(findings, observed) {
		// A command fixes the problem. Otherwise the advice has the word Only, and the command shows the reason.
		if f.Severity != Well && shows.MatchString(f.Command) && !strings.Contains(f.Advice, "Only ") {
			t.Errorf("%q shows details, and the advice is %q", f.Command, f.Advice)
		}
		for _, word := range []string{" or ", " if ", " unless ", ";"} {
			if strings.Contains(f.Command, word) && !strings.Contains(f.Command, "'"+`[{"op"`) {
				t.Errorf("%q cannot be pasted", f.Command)
			}
		}
		if (f.Severity == Problem || f.Severity == Warning) && ok[f.Check] && !slices.Contains([]string{"flow", "clock", "fence"}, f.Check) {
			t.Errorf("check %s is ok, and it has the finding %s", f.Check, f)
		}
	}
	first := findings[0]
	if got := Problems(findings) > 0; got != (first.Severity == Problem) {
		t.Errorf("exit code: %v, first line: %s", got, first.Line())
	}
	switch {
	case unobserved && len(observed) > 0:
		t.Errorf("page: %+v", observed)
	case unobserved || len(explained) == 0 && len(observed) == 0:
	case len(observed) == 0 || observed[0].Severity != explained[0].Severity && observed[0].Check != "fence" || observed[0].Effect != explained[0].Effect:
		t.Errorf("page: %+v, explain: %+v", observed, explained)
	case !strings.HasPrefix(explained[0].Cause, observed[0].Cause) && !strings.Contains(observed[0].Advice, "Only "): // it names what has the cause
		t.Errorf("page: %+v, explain: %s", observed[0], explained[0])
	}
}

// unobserved are the states that no process can observe: the page shows a leader, because its lease has not expired.
var unobserved = []string{
	"renewals have the priority of nothing", "the lock is deleted again and again", "the lock is deleted again and again, by Helm", "the lock is deleted again and again, in spite of the fence",
	"namespace is being deleted, the leader still leads", "pod of the leader deleted by force", "another program holds the lock",
}

// shows matches commands that change nothing.
var shows = regexp.MustCompile(` (logs|get|describe|history|explain|watch|verify|doctor) `)

// none means that a finding is about no election.
const none = "none"

// TestDoubtful_OwnRevision checks that the rights of another revision do not explain a free lock of one revision.
func TestDoubtful_OwnRevision(t *testing.T) {
	got := newPlane().Doubtful(inspect.Election{Namespace: home, Name: leaderelection.GatewayDeploymentController + "-stable", State: inspect.Free})
	if want := "istio-system/pilot-stable"; strings.Join(got, " ") != want {
		t.Errorf("accounts %v, want %s", got, want)
	}
}
