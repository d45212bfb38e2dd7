package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// trouble is why the processes of a pod do not run.
type trouble struct {
	// reason is the same for all pods with this trouble. detail is a message.
	reason, detail string
	// logs has the arguments of kubectl logs, if a log has the reason.
	logs string
}

func (t trouble) String() string { return strings.TrimSuffix(t.reason+": "+t.detail, ": ") }

// troubleOf returns why the processes of a pod do not run, or a zero trouble.
func troubleOf(p *corev1.Pod) trouble {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		ended := s.State.Terminated
		last := cmp.Or(ended, s.LastTerminationState.Terminated)
		waits := s.State.Waiting
		switch {
		case last != nil && last.ExitCode != 0 && !s.Ready:
			t := trouble{fmt.Sprintf("container %s ended with exit code %d (%s)", s.Name, last.ExitCode, last.Reason), lastLine(last.Message), "-c " + s.Name}
			if waits != nil {
				t.reason = waits.Reason + ": " + t.reason
			}
			if s.RestartCount > 0 {
				t.logs += " --previous"
			}
			return t
		case waits != nil && waits.Reason != "" && waits.Reason != "ContainerCreating" && waits.Reason != "PodInitializing":
			return trouble{reason: fmt.Sprintf("%s: container %s does not start", waits.Reason, s.Name), detail: lastLine(waits.Message)}
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return trouble{reason: "not scheduled", detail: lastLine(c.Message)}
		}
	}
	if !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
		return trouble{reason: fmt.Sprintf("no container runs (%s)", p.Status.Phase)}
	}
	return trouble{}
}

const (
	// maxWarmUp is the time after the start of a container in which a candidate that is not warm needs no action.
	maxWarmUp = 2 * time.Minute
	warmUp    = "The replicas are warming up. They can lead when their caches are prepared."
)

// warmsUp reports whether a candidate is not warm because its pod has just started.
func (in *Input) warmsUp(c inspect.Candidate) bool {
	p := in.pod(c.Namespace, c.Identity)
	return p != nil && !in.Now.IsZero() && c.Readiness() == inspect.Cold && slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && in.Now.Sub(s.State.Running.StartedAt.Time) < maxWarmUp
	})
}

// maxMessage is the maximum length of a message of the kubelet in a cause.
const maxMessage = 300

// lastLine returns the last line of a message. A program prints its error last.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return errlist.SingleLine(lines[len(lines)-1], maxMessage)
}

// MarkPods sets Down of the candidates whose pods do not run. It removes refusals whose cause is gone.
func (in *Input) MarkPods() {
	mark := func(c *inspect.Candidate) {
		if c.PodUID != "" && in.Pods[c.Namespace] != nil {
			c.Down = in.down(c.Namespace, c.Identity, c.PodUID, "")
		}
	}
	for i := range in.Elections {
		in.Elections[i].Candidates = slices.Clone(in.Elections[i].Candidates)
		for j := range in.Elections[i].Candidates {
			c := &in.Elections[i].Candidates[j]
			if in.past(in.Elections[i], *c) {
				c.Refused = ""
			}
			mark(c)
		}
	}
	for i := range in.Candidates {
		mark(&in.Candidates[i])
	}
}

// down returns why a pod does not run, or "". If uid is not "", the pod of another UID has replaced it. prefix is before the state of the pod.
func (in *Input) down(namespace, name, uid, prefix string) string {
	switch p := in.pod(namespace, name); {
	case p == nil:
		return "pod " + name + " does not exist"
	case uid != "" && uid != string(p.UID):
		return "pod " + name + " was replaced"
	default:
		if why := troubleOf(p).String(); why != "" {
			return prefix + why
		}
	}
	return ""
}

// pod returns a pod, or nil.
func (in *Input) pod(namespace, name string) *corev1.Pod {
	pods := in.Pods[namespace]
	if i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == name }); i >= 0 {
		return &pods[i]
	}
	return nil
}

// scale returns the command that starts two replicas.
func scale(namespace, deployment string) string {
	return fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=2", namespace, deployment)
}

// foreign reports whether the holder of the lock is another program: neither a pod nor a candidate.
func (in *Input) foreign(e inspect.Election) bool {
	return e.State == inspect.Holds && e.Program == "" && !e.Remote && Ours(e) && in.Pods[e.Namespace] != nil && in.pod(e.Namespace, e.Holder) == nil &&
		!slices.ContainsFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Identity == e.Holder })
}

// gone returns why the pod of the holder cannot act, or "". A holder outside a pod is not checked.
func (in *Input) gone(e inspect.Election) string {
	i := slices.IndexFunc(e.Candidates, func(o inspect.Candidate) bool { return o.Identity == e.Holder })
	inPods := slices.ContainsFunc(e.Candidates, func(o inspect.Candidate) bool { return o.PodUID != "" })
	uid := ""
	switch {
	case in.Pods[e.Namespace] == nil || e.Remote || i >= 0 && e.Candidates[i].PodUID == "" || i < 0 && !inPods && !Ours(e):
		return ""
	case i >= 0:
		uid = e.Candidates[i].PodUID
	}
	return in.down(e.Namespace, e.Holder, uid, "pod "+e.Holder+" does not run: ")
}

// crash returns why most pods of an election's candidates do not run. Its Cause is empty if all run, or if pods were not read.
func (in *Input) crash(e inspect.Election) Finding {
	return in.crashOf(e.Namespace, ownRevision(e))
}

// pilots returns the pods of the control plane, of a revision or of all if it is "".
func (in *Input) pilots(namespace, revision string) (all []*corev1.Pod) {
	for i, p := range in.Pods[namespace] {
		if isPilot(p.Labels, p.Spec, revision) {
			all = append(all, &in.Pods[namespace][i])
		}
	}
	return all
}

// isPilot reports whether a pod is one of the control plane, of a revision or of any if it is "".
func isPilot(labels map[string]string, spec corev1.PodSpec, revision string) bool {
	of, labelled := labels[tagging.Label]
	// A pod of the data plane has a label too.
	return labelled && (revision == "" || of == revision) && !slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == "istio-proxy" })
}

// stopped returns why the Deployments of the control plane have no pod. Its Cause is empty if there is a pod, or if they were not read.
func (in *Input) stopped(e inspect.Election) (f Finding) {
	own := ownRevision(e)
	if len(in.pilots(e.Namespace, own)) > 0 {
		return f
	}
	for _, d := range in.Deployments {
		template := d.Spec.Template
		isDefault := in.Tags != nil && in.Tags.Default == template.Labels[tagging.Label]
		if d.Namespace != e.Namespace || !isPilot(template.Labels, template.Spec, own) || f.Cause != "" && !isDefault {
			continue
		}
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			f = Finding{
				Cause: "Deployment " + d.Name + " has 0 replicas", Advice: "Start its pods.",
				Command: scale(e.Namespace, d.Name),
			}
		}
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				f = Finding{
					Cause:  fmt.Sprintf("Deployment %s cannot create pods: %s", d.Name, errlist.SingleLine(c.Message, maxMessage)),
					Advice: "Only a change of what rejects them, for example a quota, can fix this.", Command: fmt.Sprintf("kubectl -n %s describe deployment %s", e.Namespace, d.Name),
				}
			}
		}
	}
	return f
}

// ownRevision returns the revision of an election that each revision has, and "" for a shared election.
func ownRevision(e inspect.Election) string {
	for _, id := range []string{leaderelection.GatewayDeploymentController, leaderelection.GatewayStatusController} {
		if revision, ok := strings.CutPrefix(e.Name, id+"-"); ok { // a free lock has no key
			return revision
		}
	}
	if !e.Ranked && e.Key != "" {
		return e.Revision
	}
	return ""
}

// crashOf returns why most pods of a revision, or of all revisions if it is "", do not run.
func (in *Input) crashOf(namespace, revision string) Finding {
	total := map[string]int{}
	broken := map[string][]*corev1.Pod{}
	worst := ""
	for _, p := range in.pilots(namespace, revision) {
		total[p.Labels[tagging.Label]]++
		if t := troubleOf(p); t.reason != "" {
			broken[t.reason] = append(broken[t.reason], p)
			if len(broken[t.reason]) > len(broken[worst]) {
				worst = t.reason
			}
		}
	}
	if worst == "" {
		return Finding{}
	}
	var revisions []string
	all := 0
	for _, p := range broken[worst] {
		if of := p.Labels[tagging.Label]; !slices.Contains(revisions, of) {
			revisions = append(revisions, of)
			all += total[of]
		}
	}
	slices.Sort(revisions)
	first := broken[worst][0]
	t := troubleOf(first)
	f := Finding{
		Cause:   fmt.Sprintf("%d of %d pods of revision %s do not run: %s", len(broken[worst]), all, strings.Join(revisions, ", "), t),
		Advice:  "Only a change of the pods can fix this. Their state has the reason.",
		Command: fmt.Sprintf("kubectl -n %s describe pod %s", namespace, first.Name),
	}
	if t.logs != "" {
		f.Advice = "Only a change of the program or its settings can fix this. Its log has the reason."
		f.Command = fmt.Sprintf("kubectl -n %s logs %s %s", namespace, first.Name, t.logs)
	}
	return f
}
