package operate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

const (
	// lease is the lease duration of the elections.
	lease = 12 * time.Second
	// patience bounds every wait. Without a leader, some states end after two leases.
	patience = 3 * time.Minute
)

// state is a broken state. Each tool must report its words. The words none mean no alert, or no process that serves a page.
type state struct {
	name                               string
	list, doctor, explain, page, alert string
	// as has flags of electionctl.
	as string
	// breaks produces the state. The function that again returns produces it every second, until the tools were checked. repairs ends
	// the state. If it is nil and paste is set, the commands that doctor prints end it.
	breaks, repairs func(p *plane)
	again           func(p *plane) func()
	paste           bool
	// reads are words that the first command of doctor prints, if that command only reads.
	reads string
	// namespace is the namespace of the installation, if it is not istio-system.
	namespace string
}

const (
	none     = "–"
	noLeader = "IncumbentNoLeader"
	healthy  = "each election has a leader and another candidate that can lead"
	tag      = "kubectl label mutatingwebhookconfiguration istio-revision-tag-default --overwrite istio.io/rev="
	crashing = "CrashLoopBackOff: container pilot ended with exit code 1 (Error): pilot: unknown flag"
	// uncoordinated is the cause after three leases without a coordinator.
	uncoordinated = "not coordinated, although candidates request it: Lease other/incumbent-coordinator does not exist"
	note          = "kubectl -n istio-system annotate configmap istio-namespace-controller-election --overwrite "
)

var states = []state{
	{
		name: "no permission to read", as: " --as=visitor",
		list: `User "visitor" cannot list resource`, doctor: `User "visitor" cannot list resource`, explain: "kubectl auth can-i --list", page: "pilot-stable-X", alert: none,
	},
	{
		name: "pause while the default revision changes",
		list: "leads, pause", doctor: "pause by admin: for 60m no candidate can acquire the lock by rank → electionctl -n istio-system resume istio-namespace-controller-election",
		explain: "pause for 60m by", page: "pause by", alert: none,
		breaks: func(p *plane) {
			p.do("electionctl -n istio-system pause istio-namespace-controller-election --yes")
			p.do(tag + "canary")
		},
		paste:   true,
		repairs: func(p *plane) { p.do(tag + "stable") },
	},
	{
		// A stranger forges a hold without end, and writes an unknown annotation, invalid values, and a preferred holder.
		name: "annotations of a stranger",
		list: "leads, pause", doctor: "incumbent.dev/hold: pause by eve: for 7d no candidate can acquire the lock by rank", explain: "hold pause for 7d by eve", page: "pause by eve: for 7d no candidate can acquire the lock by rank", alert: none,
		breaks: func(p *plane) {
			p.do(note + fmt.Sprintf(`incumbent.dev/hold='{"holder":%q,"transitions":%d,"seconds":99999999,"requester":"eve","reason":"pause"}'`, p.leader().Name, p.term()) +
				` incumbent.dev/unknown=x incumbent.dev/nominated=eve incumbent.dev/handover-request=x incumbent.dev/preferred-holder=eve`)
		},
		paste: true,
	},
	{
		name: "second claim of the default tag",
		list: "leads", doctor: "tag default is claimed by several revisions: revision stable (MutatingWebhookConfiguration istio-revision-tag-default) counts, canary (Service istiod) does not", explain: "default stable", page: "pilot-stable-X", alert: none,
		breaks: func(p *plane) {
			p.do("kubectl -n istio-system create service clusterip istiod --tcp=443 && kubectl -n istio-system label service istiod istio.io/rev=canary istio.io/tag=default")
		},
		paste:   true,
		repairs: func(p *plane) { p.do("kubectl -n istio-system delete service istiod") },
	},
	{
		name: "FlowSchema without a share for renewals",
		list: "leads", doctor: "can lose the leader: renewals of service account istio-system/pilot-stable have FlowSchema cheap, whose priority level nothing has no share", explain: "Problem: istio-system/istio-namespace-controller-election can lose the leader: renewals of service account", page: "pilot-stable-X", alert: none,
		breaks: func(p *plane) { p.apply(starving) },
		paste:  true,
		repairs: func(p *plane) {
			p.do("kubectl delete flowschema cheap && kubectl delete prioritylevelconfiguration nothing")
		},
	},
	{
		name: "webhook that denies the lock",
		list: "leads", doctor: "will lose the leader: webhook guard.example.com of ValidatingWebhookConfiguration guard rejects the holder of the lock: denied the request: change freeze", explain: "will lose the leader: webhook guard.example.com", page: "rejected", alert: none,
		breaks:  func(p *plane) { p.review(func(context.Context) string { return "change freeze" }) },
		paste:   true,
		repairs: func(p *plane) { p.do("kubectl delete validatingwebhookconfiguration guard") },
	},
	{
		name: "right to update the locks revoked",
		list: "leads", doctor: "will lose the leader: service account istio-system/pilot-stable has no permission to update configmaps in namespace istio-system Restore the Role and the RoleBinding of the release. → helm upgrade stable", explain: "will lose the leader: service account istio-system/pilot-stable has no permission", page: "rejected", alert: none,
		breaks: func(p *plane) {
			p.do(`kubectl -n istio-system patch role pilot-stable --type=json -p '[{"op":"replace","path":"/rules/1/verbs","value":["get","watch"]}]'`)
		},
		paste: true,
	},
	{
		name: "witness socket without a witness",
		list: "leads", doctor: "have no working witness: container pilot of", explain: "uses the witness socket /run/none, and no container of the pod serves it", page: "witness: unreachable", alert: none,
		breaks: func(p *plane) {
			for _, revision := range []string{"stable", "canary"} {
				p.do("kubectl -n istio-system patch deployment pilot-" + revision + ` --type=json -p '[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--witness=socket"},` +
					`{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--witness-socket=/run/none"}]' && kubectl -n istio-system rollout status deployment pilot-` + revision)
			}
		},
		paste: true,
	},
	{
		name: "lock deleted every second",
		list: "leads", doctor: "loses its leaders: the lock configmap/istio-namespace-controller-election was deleted under a leader", explain: "loses its leaders: the lock configmap/istio-namespace-controller-election was deleted", page: "pilot-stable-X", alert: none,
		again:   func(p *plane) func() { return p.deleteLock },
		reads:   "system:masters",
		repairs: func(p *plane) { p.do("kubectl -n istio-system delete events --all") }, // doctor counts deletions of the last 10 minutes
	},
	{
		name: "clock of a process ahead",
		list: "leads", doctor: "the clock of pilot-ghost is", explain: "pilot-ghost", page: "pilot-stable-X", alert: none,
		breaks:  func(p *plane) { p.member(45 * time.Second) },
		repairs: func(p *plane) { p.do("kubectl -n istio-system delete lease " + members.LeaseName("pilot-ghost")) },
	},
	{
		name: "fence of another mode",
		list: "leads", doctor: "the API server reports writes of non-leaders and admits them", explain: "leads", page: "admitted", alert: "IncumbentFenceNotInEffect",
		breaks:  (*plane).bindAudit,
		repairs: (*plane).repair,
	},
	{
		name: "default revision without processes",
		list: "leads", doctor: "the default revision is ghost, but no live process runs it", explain: "default ghost", page: "pilot-stable-X", alert: none,
		breaks:  func(p *plane) { p.do(tag + "ghost") },
		repairs: func(p *plane) { p.do(tag + "stable") },
	},
	{
		name: "policies of the fence deleted",
		list: "leads", doctor: "bindings are missing, for example incumbent-fence.", explain: "leads", page: "admitted", alert: "IncumbentFenceNotInEffect",
		breaks:  (*plane).deletePolicies,
		repairs: (*plane).repair,
	},
	{
		name: "default revision crashes",
		list: "leads", doctor: "the default revision is stable, but no live process runs it: 2 of 2 pods of revision stable do not run: " + crashing,
		explain: "the default revision is stable, but no live process runs it: 2 of 2 pods", page: "pilot-canary-X", alert: none,
		breaks: func(p *plane) { p.crash("stable") },
		reads:  "unknown flag",
	},
	{
		name: "every replica crashes",
		list: "free", doctor: "have no leader: 4 of 4 pods of revision canary, stable do not run: " + crashing, explain: "has no leader: 4 of 4 pods of revision canary, stable do not run: " + crashing, page: none, alert: noLeader,
		breaks: func(p *plane) { p.crash("canary") },
		reads:  "unknown flag",
		repairs: func(p *plane) {
			p.do("kubectl -n istio-system rollout undo deployment pilot-stable && kubectl -n istio-system rollout undo deployment pilot-canary")
		},
	},
	{
		name: "record unreadable",
		list: "unreadable, see explain", doctor: "istio-namespace-controller-election has no leader: record of the lock is unreadable", explain: "unreadable", page: "unreadable", alert: noLeader,
		again: func(p *plane) func() {
			n := 0
			return func() { // candidates replace it after it has been unchanged for a lease duration
				n++
				_ = p.setRecord(fmt.Sprint("{", n)) // the check fails if it never succeeds
			}
		},
		repairs: func(*plane) {},
	},
	{
		name: "pod of the leader deleted by force",
		list: "leads", doctor: "has no live leader: pod pilot-stable-X does not exist", explain: "pod pilot-stable-X does not exist", page: "pilot-stable-X", alert: noLeader,
		breaks: func(p *plane) {
			leader := p.leader()
			p.must(p.Node.Signal(leader.Namespace, leader.Name, syscall.SIGSTOP)) // it cannot release the lock
			p.setLease(10 * time.Minute)                                          // otherwise another candidate acquires it during the check
			p.do("kubectl -n istio-system delete pod --grace-period=0 --force " + leader.Name)
		},
		repairs: func(p *plane) { p.setLease(lease) },
	},
	{
		name: "only one candidate",
		list: "leads", doctor: "no candidate that can replace the leader: other candidates: none", explain: "leads", page: "none", alert: none,
		breaks: func(p *plane) { p.scale(1, 0) },
	},
	{
		name: "leader stopped, no other candidate",
		list: "expired (renewed 20s ago)", doctor: "no leader: expired", explain: "expired", page: none, alert: noLeader,
		again: func(p *plane) func() {
			leader := p.leader()
			return func() { _ = p.Node.Signal(leader.Namespace, leader.Name, syscall.SIGSTOP) } // also after a restart by its liveness probe
		},
	},
	{
		name: "all replicas at 0",
		list: "free", doctor: "have no leader: Deployment pilot-stable has 0 replicas", explain: "free: the last holder released it", page: none, alert: noLeader,
		breaks: func(p *plane) {
			leader := p.leader()
			harness.Until(p.t, "the leader continues", func() bool { return p.Node.Signal(leader.Namespace, leader.Name, syscall.SIGCONT) == nil })
			p.shows("continued", "list", "leads", p.electionctl("list | grep 'istio-namespace-controller-election '"))
			p.scale(0, 0)
		},
	},
	{
		name: "coordinator gone", namespace: "other",
		list: "leads", doctor: uncoordinated + ", so no coordinator runs", explain: uncoordinated, page: "not coordinated, although candidates request it", alert: none,
		breaks: func(p *plane) {
			p.install("other", "stable", "replicas=2,elections.leaseDuration=6s,elections.renewDeadline=4s,elections.retryPeriod=1s,"+
				"elections.lock=lease,elections.strategy=incumbent.dev/DefaultRevision,elections.coordinator=false")
		},
		paste: true,
	},
	{
		name: "fence for a missing account", namespace: "other",
		list: "expired", doctor: "the fence other names other/piolt and not the service accounts of the pods (other/pilot-stable), so the API server rejects them as holders",
		explain: "the fence other names other/piolt and not the service accounts", page: "ValidatingAdmissionPolicy", alert: none,
		breaks: func(p *plane) {
			p.do("electionctl -n other fence install --lock=lease --service-account=piolt --revisions=stable --keep --wait=0")
		},
		paste: true,
	},
	{
		name: "namespace in Terminating", namespace: "other",
		list: "free", doctor: "no leader: namespace other is being deleted (Terminating)", explain: "no leader: namespace other is being deleted (Terminating)", page: none, alert: none,
		breaks: func(p *plane) {
			p.do("kubectl -n other create configmap stuck && kubectl -n other patch configmap stuck -p '{\"metadata\":{\"finalizers\":[\"example.com/stuck\"]}}' && kubectl delete namespace other --wait=false")
		},
		reads: "phase: Terminating",
	},
}

func TestStates(t *testing.T) {
	p := startPlane(t)
	p.shows("all candidates ready", "doctor", healthy, p.electionctl("doctor"))
	p.step(t, "operator", p.operator)
	if p.prometheus != nil {
		p.step(t, "upgrade", func() { p.prometheus.upgrade(p) })
	}
	for _, s := range states {
		if !p.step(t, s.name, func() { p.try(s) }) {
			return // later states begin with the end of this one
		}
	}
	if p.prometheus != nil {
		p.prometheus.checkAnnotations(t)
	}
}

// step runs a subtest.
func (p *plane) step(t *testing.T, name string, run func()) bool {
	defer func() { p.t = t }()
	return t.Run(name, func(t *testing.T) {
		p.t = t
		run()
	})
}

// try produces a state, checks it and repairs it.
func (p *plane) try(s state) {
	p.t.Helper()
	p.namespace = cmp.Or(s.namespace, rollout.Namespace)
	if s.breaks != nil {
		s.breaks(p)
	}
	end := func() {}
	if s.again != nil {
		end = p.repeat(s.again(p))
		p.t.Cleanup(end) // if the check ends the test
	}
	p.check(s)
	if s.reads != "" {
		p.shows(s.name, "the command of doctor", s.reads, func() string {
			_, command := p.advice()
			return p.run(command)
		})
	}
	end()
	if s.paste {
		p.paste()
	}
	if s.repairs != nil {
		s.repairs(p)
	}
	if s.repairs != nil || s.paste {
		p.shows(s.name+", repaired", "doctor", healthy, p.electionctl("doctor"))
	}
}

// paste pastes the first command of doctor into a terminal, as it is printed, and confirms it, until doctor reports neither a problem nor a
// warning. It pastes a command again only if doctor still prints it after a lease.
func (p *plane) paste() {
	p.t.Helper()
	const most = 4 // some states are several problems
	pasted := 0
	again := time.Time{}
	for last := ""; ; {
		out, command := p.advice()
		reads := strings.Contains(command, " logs ") // of a Pod that starts
		switch {
		case !bad.MatchString(out):
			return
		case (command == last || command == "" || reads) && time.Now().Before(again):
			_ = apirequest.Pause(p.t.Context(), 500*time.Millisecond)
			continue
		case command == "" || pasted == most:
			p.t.Errorf("after %d printed commands: %s", pasted, out)
			return
		}
		p.t.Log(command)
		p.do("line=$(cat <<'EOF'\n" + command + "\nEOF\n); printf 'y\\n' | script -qec \"$line\" /dev/null") // a terminal, for the prompt
		last = command
		again = time.Now().Add(lease)
		pasted++
	}
}

// advice returns the output of doctor, and its first command.
func (p *plane) advice() (out, command string) {
	text, _ := p.Shell(p.t.Context(), p.folder, "electionctl -n "+p.namespace+" doctor").CombinedOutput()
	_, command, _ = strings.Cut(string(text), "→ ")
	command, _, _ = strings.Cut(command, "\n")
	return string(text), command
}

// deleteLock deletes the watched lock. It may not exist again yet.
func (p *plane) deleteLock() {
	_ = p.Kube.CoreV1().ConfigMaps(p.namespace).Delete(p.t.Context(), watched, metav1.DeleteOptions{})
}

var bad = regexp.MustCompile(`(?m)\s(problem|warning)\s`)

// operator binds the roles of operators as the documentation does. For such a user, no check may be unknown.
func (p *plane) operator() {
	p.t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "fence.md"))
	p.must(err)
	_, section, _ := strings.Cut(string(page), "### Operators")
	_, commands, _ := strings.Cut(section, "```\n")
	commands, _, _ = strings.Cut(commands, "```")
	p.do(commands)
	const as = " --as=op --as-group=oncall 2>&1"
	p.shows("an operator", "doctor", healthy, p.electionctl("doctor"+as))
	for command, words := range map[string]string{"doctor": "user op may: ", "list": " leads", "explain " + watched: "default stable"} {
		if got := p.electionctl(command + as)(); strings.Contains(got, "unknown") || strings.Contains(got, "forbidden") || !strings.Contains(got, words) {
			p.t.Errorf("%s of an operator: %s", command, got)
		}
	}
}

// check checks the words of each tool.
func (p *plane) check(s state) {
	p.t.Helper()
	if p.prometheus != nil {
		p.must(p.prometheus.scrape(p))
	}
	p.shows(s.name, "page", s.page, p.page)
	p.shows(s.name, "list", s.list, p.electionctl("list"+s.as+" | grep -E 'istio-namespace-controller-election |cannot'"))
	p.shows(s.name, "doctor", s.doctor, p.electionctl("doctor"+s.as))
	p.shows(s.name, "explain", s.explain, p.electionctl("explain istio-namespace-controller-election"+s.as))
	if p.prometheus != nil && s.namespace == "" { // it has the rules of one namespace
		p.shows(s.name, "alert", "["+s.alert+"]", func() string { return "[" + p.prometheus.active(p.t) + "]" })
	}
}

// shows waits until a tool reports the words.
func (p *plane) shows(state, tool, words string, output func() string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		got := output()
		if strings.Contains(got, words) {
			return
		}
		if apirequest.Pause(ctx, 500*time.Millisecond) != nil { // each check runs a program
			p.t.Errorf("%s: %s has no %q:\n%s", state, tool, words, got)
			return
		}
	}
}

// TestTable_Current compares the states with the table in docs/tools.md, which -rewrite generates.
func TestTable_Current(t *testing.T) {
	table := "\n| state | list | doctor | explain | page | alert |\n| --- | --- | --- | --- | --- | --- |\n"
	code := func(s string) string {
		if s == none {
			return none
		}
		return "`" + strings.ReplaceAll(s, "|", "\\|") + "`"
	}
	for _, s := range states {
		alert := code(s.alert)
		if s.alert != none {
			alert = fmt.Sprintf("[%s](monitoring.md#%s)", s.alert, strings.ToLower(s.alert))
		}
		table += fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", s.name, code(s.list), code(s.doctor), code(s.explain), code(s.page), alert)
	}
	golden.Section(t, filepath.Join(root, "docs", "tools.md"), "<!-- begin of the table of states -->\n", "<!-- end of the table of states -->", table+"\n")
}
