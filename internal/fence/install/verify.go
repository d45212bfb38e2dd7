package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// answerOf classifies the error of a write.
func answerOf(err error) fence.Answer {
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // admission precedes the lookup of the object
		return fence.Admitted
	case fence.IsRefusal(err):
		return fence.Refused
	}
	return fence.Unclear
}

// Verify checks that the objects of a fence are installed as rendered. Then it checks with dry-run writes that the leader
// may write and other pods may not. It impersonates pods of the declared service accounts. The result applies to the API
// server of client.
func Verify(ctx context.Context, client kube.Client, set fence.Set, declarations ...fence.Declaration) ([]Finding, error) {
	v := newVerifier(ctx, client)
	for _, p := range set.All() {
		v.object(p)
	}
	v.holders(declarations)
	for _, p := range fence.Probes(declarations...) {
		v.guard(p)
	}
	return v.findings, v.err
}

// holders checks that the service accounts exist, and that the pod of each holder runs with an account that may hold its lock.
func (v *verifier) holders(declarations []fence.Declaration) {
	for _, p := range fence.LockProbes(declarations...) {
		if v.err != nil {
			return
		}
		for _, account := range p.ServiceAccounts {
			v.account(account)
		}
		if p.Mode != fence.Deny {
			continue // other modes reject nothing
		}
		holder, _, err := v.holder(p)
		if err != nil {
			v.err = err
			return
		}
		pod, err := v.client.Kube().CoreV1().Pods(p.Namespace).Get(v.ctx, holder, metav1.GetOptions{})
		if holder == "" || err != nil {
			continue // no candidate leads, or the holder is a pod of another namespace or cluster
		}
		account := p.Namespace + "/" + cmp.Or(pod.Spec.ServiceAccountName, "default")
		if what := fmt.Sprintf("pod %s, which holds %s, has an account that may hold it", holder, p.Where()); p.MayHold(account) {
			v.found(Holds, what, "")
		} else {
			v.found(Fails, what, "it runs with service account "+account+", and the fence declares "+strings.Join(append(slices.Clone(p.ServiceAccounts), p.Others...), ", "))
		}
	}
}

// verifier collects findings until a request fails.
type verifier struct {
	ctx      context.Context
	config   *rest.Config
	client   kube.Client
	kinds    kinds
	accounts map[string]bool // those already checked
	findings []Finding
	err      error
}

func newVerifier(ctx context.Context, client kube.Client) *verifier {
	return &verifier{ctx: ctx, config: client.RESTConfig(), client: client, accounts: map[string]bool{}}
}

func (v *verifier) found(verdict Verdict, what, why string) {
	v.findings = append(v.findings, Finding{Server: v.config.Host, What: what, Verdict: verdict, Why: why})
}

// object checks that a pair is installed as rendered.
func (v *verifier) object(p fence.Pair) {
	if v.err != nil {
		return
	}
	changes, err := differs(v.ctx, v.client.Kube(), p)
	if err != nil {
		v.err = fmt.Errorf("read %s: %w", p.Name(), err)
		return
	}
	what := "policy " + p.Name() + " is installed"
	if len(changes) > 0 {
		v.found(Fails, what, strings.Join(changes, ", ")+". Run `pilot fence install`")
		return
	}
	v.found(Holds, what, "")
}

// noPod is a pod name that no pod has.
const noPod = "incumbent-fence-nobody"

// guard tries the writes of a guard for each account: as a pod that does not lead, with an unbound token, and as the
// leader.
func (v *verifier) guard(p fence.Probe) {
	if v.err != nil {
		return
	}
	if v.kinds == nil {
		kinds, err := served(v.client.Kube())
		if err != nil {
			v.err = fmt.Errorf("discover kinds: %w", err)
			return
		}
		v.kinds = kinds
	}
	holder, there, err := v.holder(p)
	if err != nil {
		v.err = err
		return
	}
	for _, account := range p.ServiceAccounts {
		for _, resource := range p.Guard.Resources {
			v.resource(p, account, resource, holder, there)
		}
	}
}

// account checks that a service account exists. Otherwise RBAC rejects all writes as this account.
func (v *verifier) account(account string) {
	if v.accounts[account] {
		return
	}
	v.accounts[account] = true
	namespace, name, _ := strings.Cut(account, "/")
	what := "service account " + account + " exists"
	switch _, err := v.client.Kube().CoreV1().ServiceAccounts(namespace).Get(v.ctx, name, metav1.GetOptions{}); {
	case err == nil:
		v.found(Holds, what, "")
	case apierrors.IsNotFound(err):
		v.found(Undecided, what, "not found. Nothing can be tested with it, and a leader with another account is not guarded")
	default:
		v.found(Undecided, what, err.Error())
	}
}

// resource tries the guarded writes of one resource for one account.
func (v *verifier) resource(p fence.Probe, account, resource, holder string, there bool) {
	what := fmt.Sprintf("%s guards %s for %s: ", p.Where(), resource, account)
	if p.Mode == fence.Audit {
		v.found(Skipped, what+"a pod that does not lead is rejected", "mode audit rejects nothing")
		return
	}
	writes, why := v.kinds.writes(v.ctx, v.client.Dynamic(), p, resource)
	if len(writes) == 0 {
		v.found(Undecided, what+"a pod that does not lead is rejected", why)
		return
	}
	judged := v.refused(p, account, noPod, what+"a pod that does not lead is rejected", writes)
	if p.Mode == fence.Warn || len(judged) == 0 {
		return
	}
	v.refused(p, account, "", what+"an unbound token is rejected", judged)
	switch {
	case !there:
		v.found(Skipped, what+"the leader may write", "the lock does not exist. Until a candidate leads, all guarded writes are rejected")
	case holder == "":
		v.found(Skipped, what+"the leader may write", "no candidate leads")
	default:
		v.admitted(account, holder, fmt.Sprintf("%sleader pod %s may write", what, holder), judged)
	}
}

// refused tries writes that must be rejected, and returns the writes that the fence rejected. RBAC may reject some of them. If
// it rejects all, the result is unclear.
func (v *verifier) refused(p fence.Probe, account, pod, what string, writes []write) (judged []write) {
	var done, why []string
	said := ""
	for _, w := range writes {
		answer, err := v.try(account, pod, w)
		if p.Mode == fence.Warn {
			answer = w.warned(answer)
		}
		switch answer {
		case fence.Refused:
			judged, done = append(judged, w), append(done, w.verb)
			if said == "" && err != nil {
				said = ": " + err.Error()
			}
		case fence.Admitted:
			v.found(Fails, what, w.verb+" was admitted")
			return nil
		case fence.Unclear:
			if err != nil {
				why = append(why, w.verb+": "+err.Error())
			}
		}
	}
	if len(judged) == 0 {
		v.found(Undecided, what, strings.Join(why, "; "))
		return nil
	}
	v.found(Holds, what, strings.Join(done, ", ")+said)
	return judged
}

// admitted tries, as the leader, writes that the fence evaluates. Errors with another cause do not matter.
func (v *verifier) admitted(account, holder, what string, writes []write) {
	for _, w := range writes {
		if answer, err := v.try(account, holder, w); answer == fence.Refused {
			v.found(Fails, what, w.verb+" was rejected: "+err.Error())
			v.findings[len(v.findings)-1].leader = true
			return
		}
	}
	v.found(Holds, what, "")
}

// try sends a write as a pod of an account.
func (v *verifier) try(account, pod string, w write) (fence.Answer, error) {
	config := impersonate(v.config, account, pod)
	config.WarningHandlerWithContext = w.warnings // has precedence over the other field, which kube.NewClient clears
	client, err := kube.NewClient(config)
	if err != nil {
		return fence.Unclear, err
	}
	defer kube.CloseIdleConnections(client)
	return w.try(v.ctx, client.Dynamic())
}

// impersonate returns a configuration for a pod of a service account. An empty pod means an unbound token.
func impersonate(config *rest.Config, account, pod string) *rest.Config {
	as := rest.CopyConfig(config)
	as.QPS = -1
	as.Impersonate.UserName, as.Impersonate.Groups = fence.UserOf(account)
	if pod != "" {
		as.Impersonate.Extra = map[string][]string{fence.PodClaim: {pod}}
	}
	return as
}

// holder returns the pod that the lock names.
func (v *verifier) holder(p fence.Probe) (holder string, there bool, err error) {
	at := metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}
	snap, err := k8sresourcelock.NewLock(p.Lock, at, v.client.Kube(), k8sresourcelock.ResourceLockConfig{}, nil).Read(v.ctx)
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", p.Where(), err)
	}
	holder = snap.Record.HolderIdentity
	if p.Coordinated {
		holder = strings.TrimSuffix(holder, "."+p.Name)
	}
	return holder, snap.Exists, nil
}
