package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// Answer is what became of a write that was tried dry.
type Answer uint8

const (
	// Unclear: something else stood in the way, or the API server did not answer.
	Unclear Answer = iota
	// Admitted: the fence let it pass.
	Admitted
	// Refused: the fence refused it.
	Refused
)

func (a Answer) String() string {
	switch a {
	case Admitted:
		return "admitted"
	case Refused:
		return "refused"
	case Unclear:
	}
	return "unclear"
}

// Try makes a probe's write, dry, as whoever client is. The error says why it was
// refused, or what was unclear about it.
func Try(ctx context.Context, client dynamic.Interface, p fence.Probe) (Answer, error) {
	if p.Object == nil {
		return Unclear, fmt.Errorf("no write is known that would try %s", strings.Join(p.Guard.Resources, ", "))
	}
	_, err := client.Resource(p.Resource).Namespace(p.Object.GetNamespace()).
		Create(ctx, p.Object.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // admission comes before the object is looked for
		return Admitted, nil
	case fence.IsRefusal(err):
		return Refused, err
	}
	return Unclear, err
}

// Finding is one thing that was looked at.
type Finding struct {
	// What was looked at, as a sentence.
	What string
	// Holds: it is as it should be. Known is false when that could not be found out.
	Holds, Known bool
	// Why is what was seen.
	Why string
}

func (f Finding) String() string {
	verdict := "unclear"
	switch {
	case f.Known && f.Holds:
		verdict = "holds"
	case f.Known:
		verdict = "FAILS"
	}
	text := fmt.Sprintf("%-7s  %s", verdict, f.What)
	if f.Why != "" {
		text += ": " + f.Why
	}
	return text
}

// Stands reports whether everything holds, or could not be found out for a reason other
// than the fence.
func Stands(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if f.Known && !f.Holds {
			errs = append(errs, fmt.Errorf("%s: %s", f.What, f.Why))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the fence does not stand: %w", errors.Join(errs...))
	}
	return nil
}

// Verify finds out whether a fence stands: that its objects are as rendered, and by
// dry-run writes that the leader may write and others may not. It acts as the declared
// service accounts' pods, for which it needs the right to impersonate them. It speaks
// for the one API server that it reaches.
func Verify(ctx context.Context, config *rest.Config, set fence.Set, declarations ...fence.Declaration) ([]Finding, error) {
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	if err != nil {
		return nil, err
	}
	defer kube.CloseIdleConnections(client)
	v := verifier{ctx: ctx, config: config, client: client.Kube()}
	for _, p := range set.All() {
		v.object(p)
	}
	for _, p := range fence.Probes(declarations...) {
		v.probe(p)
	}
	return v.findings, v.err
}

// verifier collects findings until the API server cannot be asked.
type verifier struct {
	ctx      context.Context
	config   *rest.Config
	client   kubernetes.Interface
	findings []Finding
	err      error
}

func (v *verifier) found(what string, holds bool, why string) {
	v.findings = append(v.findings, Finding{What: what, Holds: holds, Known: true, Why: why})
}

// object looks whether a pair is installed as it was rendered: whether applying it
// again would change anything.
func (v *verifier) object(p fence.Pair) {
	if v.err != nil {
		return
	}
	changes, err := differs(v.ctx, v.client, p)
	if err != nil {
		v.err = fmt.Errorf("looking at %s: %w", p.Name(), err)
		return
	}
	why := ""
	if len(changes) > 0 {
		why = strings.Join(changes, ", ") + "; `pilot fence install` puts it right"
	}
	v.found("policy "+p.Name()+" is installed", len(changes) == 0, why)
}

// stranger is no pod: it never leads.
const stranger = "incumbent-fence-nobody"

// probe tries a group of writes as the leader, as another pod, and with a token that is
// bound to none, for each account.
func (v *verifier) probe(p fence.Probe) {
	if v.err != nil {
		return
	}
	what := fmt.Sprintf("%s guards %s", p.Where(), strings.Join(p.Guard.Resources, ", "))
	if p.Object == nil {
		v.findings = append(v.findings, Finding{What: what, Why: "not tried, no write is known for it"})
		return
	}
	holder, there, err := v.holder(p)
	if err != nil {
		v.err = err
		return
	}
	for _, account := range p.ServiceAccounts {
		as := what + " for " + account + ": "
		v.try(p, account, stranger, Refused, as+"a pod that does not lead is refused")
		v.try(p, account, "", Refused, as+"a token that is bound to no pod is refused")
	}
	switch {
	case !there:
		v.findings = append(v.findings, Finding{What: what + ": the leader may write", Why: "there is no such lock, so that everyone's writes are refused until somebody leads"})
	case holder == "":
		v.findings = append(v.findings, Finding{What: what + ": the leader may write", Why: "nobody leads now"})
	default:
		v.leader(p, holder, what)
	}
}

// leader tries the write as the holder. Its account is not in the record: one of those
// declared must be let to, and RBAC may keep the others from it.
func (v *verifier) leader(p fence.Probe, holder, what string) {
	for _, account := range p.ServiceAccounts {
		v.try(p, account, holder, Admitted, fmt.Sprintf("%s for %s: pod %s, which leads, may write", what, account, holder))
	}
}

func (v *verifier) try(p fence.Probe, account, pod string, want Answer, what string) {
	if v.err != nil {
		return
	}
	client, err := dynamic.NewForConfig(impersonate(v.config, account, pod))
	if err != nil {
		v.err = err
		return
	}
	got, err := Try(v.ctx, client, p)
	f := Finding{What: what, Holds: got == want, Known: got != Unclear}
	if got != want {
		f.Why = got.String()
	}
	if err != nil {
		f.Why = err.Error()
	}
	v.findings = append(v.findings, f)
}

// impersonate acts as a pod of a service account; pod "" is a token bound to none.
func impersonate(config *rest.Config, account, pod string) *rest.Config {
	namespace, name, _ := strings.Cut(account, "/")
	as := rest.CopyConfig(config)
	as.QPS = -1
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	if pod != "" {
		as.Impersonate.Extra = map[string][]string{fence.PodClaim: {pod}}
	}
	return as
}

// holder is who the lock names.
func (v *verifier) holder(p fence.Probe) (holder string, there bool, err error) {
	var snap k8sresourcelock.Snapshot
	if p.Lock == fence.Lease {
		lease, err := v.client.CoordinationV1().Leases(p.Namespace).Get(v.ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return "", false, missing(p, err)
		}
		snap = k8sresourcelock.LeaseSnapshot(lease)
	} else {
		configMap, err := v.client.CoreV1().ConfigMaps(p.Namespace).Get(v.ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return "", false, missing(p, err)
		}
		snap = k8sresourcelock.ConfigMapSnapshot(configMap)
	}
	return snap.Record.HolderIdentity, true, nil
}

func missing(p fence.Probe, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("reading %s: %w", p.Where(), err)
}
