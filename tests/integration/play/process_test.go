package play

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/history"
	"incumbent.dev/incumbent/internal/testutil/play"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// process is one process of a play, ours or a peer, with an identity and a relay of its own.
type process struct {
	play.Part // guarded by w.Mu, but for its names

	w      *world
	l      *leaderelection.LeaderElection // nil: a peer
	relay  *relay.Relay
	client kube.Client
	cancel context.CancelFunc
	done   chan struct{}
	beside sync.WaitGroup // its watcher, and the writers that its functions leave behind

	// w.Mu guards these.
	runs int
}

// lockVerbs are what a process may do to a lock object.
var lockVerbs = []string{"get", "watch", "update"}

// rules allow those verbs on the locks, and the work.
func (w *world) rules(verbs []string) []rbacv1.PolicyRule {
	groups := []string{"", "coordination.k8s.io"}
	kinds := []string{"configmaps", "leases"}
	rules := []rbacv1.PolicyRule{{APIGroups: groups, Resources: kinds, Verbs: verbs, ResourceNames: []string{election, w.leaseName("stable"), w.leaseName("canary")}}}
	if len(verbs) == len(lockVerbs) {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: groups, Resources: kinds, Verbs: []string{"create"}})
	}
	return append(rules, rbacv1.PolicyRule{APIGroups: groups, Resources: kinds[:1], Verbs: []string{"patch"}, ResourceNames: []string{work}})
}

// identity is that of a process, which has a service account of its own.
func (w *world) identity(name string) *rest.Config {
	if w.configs[name] == nil {
		w.configs[name] = w.cluster.Identity(w.t, cluster.IdentityOptions{
			Namespace: w.namespace, PodName: name, Rules: w.rules(lockVerbs),
			ClusterRules: []rbacv1.PolicyRule{{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
				ResourceNames: []string{w.tag()}, Verbs: []string{"get", "list", "watch"},
			}},
		})
	}
	return rest.CopyConfig(w.configs[name])
}

// allow gives a process these verbs on the locks, and no others.
func (w *world) allow(name string, verbs []string) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, Rules: w.rules(verbs)}
	if _, err := w.admin.RbacV1().Roles(w.namespace).Update(w.ctx, role, metav1.UpdateOptions{}); err != nil {
		w.Violate("the rights of %s: %v", name, err)
	}
}

// start runs a process of that name.
func (w *world) start(name, revision string, m play.Make) {
	p := &process{w: w, Part: play.Part{Name: name, Revision: revision, Make: m}, done: make(chan struct{})}
	config := w.identity(name)
	at, err := url.Parse(config.Host)
	if err == nil {
		p.relay, err = relay.Listen(w.ctx, at.Host)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	config.Host, config.ServerName = "https://"+p.relay.Addr(), at.Hostname()
	if w.bug.wrap != nil {
		config.Wrap(w.bug.wrap)
	}
	if p.client, err = kube.NewClient(config, kube.WithOwnConnections(), kube.WithRateLimit(-1, 0)); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	p.cancel = cancel
	watcher := revisions.NewDefault(p.client, revisions.Config{Namespace: w.namespace, Logger: slog.New(slog.DiscardHandler)})
	p.beside.Go(func() { watcher.Run(ctx.Done()) })
	run := p.elector(watcher)
	w.processes = append(w.processes, p)
	w.Locked(func() { w.all = append(w.all, p) })
	go func() {
		defer close(p.done)
		run(ctx)
		p.beside.Wait()
	}()
	w.Logf("start %s (%s, %v)", name, revision, m)
}

// elector is how the process takes part.
func (p *process) elector(watcher revisions.DefaultWatcher) (run func(context.Context)) {
	if p.Make.Peer() {
		return p.peer()
	}
	var err error
	if p.l, err = leaderelection.New(p.client, p.w.config(p.Name, p.Revision, p.Make, watcher, p.w.Logger(&p.Part))); err != nil {
		p.w.t.Fatal(err)
	}
	p.l.Fit(p.w.Fit(&p.Part)).AddRunContext(p.work)
	return func(ctx context.Context) { _ = p.l.RunContext(ctx) } // what functions fail with
}

// ran notes the begin or the end of the functions; n is the run's number.
func (p *process) ran(is bool) (n int) {
	p.w.Mu.Lock()
	defer p.w.Mu.Unlock()
	if is {
		p.runs++
	}
	p.Ran(is, time.Now())
	return p.runs
}

// work is what the processes' functions write.
const work = "work"

var errPlay = errors.New("the function has failed")

// work is the run function: it leaves a writer behind that goes on for a while after it has
// returned. It returns late, or fails.
func (p *process) work(ctx context.Context) error {
	w := p.w
	term, _ := k8sleaderelection.TermFromContext(ctx)
	n := p.ran(true)
	defer p.ran(false)
	token := term.Token
	if w.bug.token {
		token = 1
	}
	write := history.Write{
		By: p.Name, Run: fmt.Sprintf("%s-%d-%d", p.Name, p.incarnation(), n), Election: p.Election(), Token: token,
	}
	late, fails := w.Within(drain), w.Within(20*lease)
	straggling, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.beside.Go(func() { p.write(straggling, write) })
	p.beside.Go(func() {
		defer stop()
		<-ctx.Done()
		<-time.After(lease / 2)
	})
	failed := time.NewTimer(fails)
	defer failed.Stop()
	select {
	case <-ctx.Done():
		<-time.After(late)
		return nil
	case <-failed.C:
	}
	if w.IsCalm() {
		<-ctx.Done()
		return nil
	}
	return errPlay
}

// incarnation tells the process from those that had its name before.
func (p *process) incarnation() (n int) {
	for _, q := range p.w.everyone() {
		if n++; q == p {
			break
		}
	}
	return n
}

func (w *world) everyone() []*process {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return append([]*process{}, w.all...)
}

// write writes again and again, through the gate.
func (p *process) write(ctx context.Context, as history.Write) {
	client := p.l.Client()
	if p.w.bug.ungated {
		client = p.client
	}
	var labels []string
	for key, value := range as.Labels() {
		labels = append(labels, fmt.Sprintf("%q:%q", key, value))
	}
	for n := 0; ctx.Err() == nil; n++ {
		// A number, so that each write changes the object: one that does not is no event.
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%s}},"data":{"n":"%s-%d"}}`, strings.Join(labels, ","), as.Run, n)
		callCtx, cancel := context.WithTimeout(ctx, renew)
		_, _ = client.Kube().CoreV1().ConfigMaps(p.w.namespace).Patch(callCtx, work, types.MergePatchType, patch, metav1.PatchOptions{}) // refusals are what the gate is for
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(20*time.Millisecond + p.w.Within(40*time.Millisecond)):
		}
	}
}
