package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// defaultTag is the webhook that is labelled with the default revision, unless a webhook is named for the namespace.
var defaultTag = tagging.DefaultTagWebhook("")

// readLimit bounds a read without which a command can continue.
const readLimit = 15 * time.Second

// clients are the clients of the API server.
type clients struct {
	config *rest.Config
	kube   kubernetes.Interface
	meta   metadata.Interface
	clock  *apirequest.ServerClock
	// at is the selected namespace, or "" for all.
	at string
}

// nowhere is the host of kubectl's flags if no cluster is configured.
const nowhere = "http://localhost:8080"

// connected returns the RunE of a command that connects before it runs. It validates the format of out first, unless out is nil.
func (p *Program) connected(out *output, run func(ctx context.Context, c *clients, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if out != nil {
			if err := out.check(); err != nil {
				return err
			}
		}
		c, err := p.connect()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
}

// config returns the configuration of the selected context.
func (p *Program) config() (*rest.Config, error) {
	if _, err := clientcmd.ParseTimeout(*p.flags.Timeout); err != nil {
		return nil, withCode(misused, "--request-timeout=%s: give a number of seconds, or a duration such as 1s, 2m or 3h", *p.flags.Timeout)
	}
	config, err := p.flags.ToRESTConfig()
	from := strings.Join(p.flags.ToRawKubeConfigLoader().ConfigAccess().GetLoadingPrecedence(), ", ")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, withCode(misused, "kubeconfig: %w; use --kubeconfig or set KUBECONFIG", err)
	case err != nil:
		return nil, withCode(misused, "kubeconfig %s: %w; list its contexts: kubectl config get-contexts; to use another file: --kubeconfig or KUBECONFIG", from, err)
	case config.Host == nowhere && *p.flags.APIServer == "":
		return nil, withCode(misused, "%s in %s: use --kubeconfig or set KUBECONFIG", p.missingCluster(), from)
	}
	return config, nil
}

// missingCluster returns why the kubeconfig has no cluster. clientcmd reports no error if the context names a cluster that no file has.
func (p *Program) missingCluster() string {
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	name := cmp.Or(*p.flags.Context, raw.CurrentContext)
	if selected := raw.Contexts[name]; err == nil && selected != nil && selected.Cluster != "" && raw.Clusters[selected.Cluster] == nil {
		return fmt.Sprintf("context %q has cluster %q, which does not exist", name, selected.Cluster)
	}
	return "no cluster is configured"
}

func (p *Program) connect() (*clients, error) {
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "electionctl"
	c := &clients{clock: &apirequest.ServerClock{}}
	config.Wrap(c.clock.Wrap)
	if !p.all {
		if c.at, _, err = p.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
			return nil, err
		}
	}
	client, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	c.kube = client.Kube()
	c.config = client.RESTConfig()
	// Only metadata, because the data of ConfigMaps is large and not needed.
	c.meta, err = metadata.NewForConfig(c.config)
	return c, err
}

// serverTime returns the time of the API server.
func (c *clients) serverTime(ctx context.Context) (time.Time, error) {
	_, err := c.kube.CoreV1().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	return c.clock.Now(), err
}

// seen is the result of one read of a namespace, or of all.
type seen struct {
	locks      []inspect.Lock
	candidates []inspect.Candidate
	// members are the namespaces with member Leases.
	members map[string]bool
	// ahead has the differences of the members' clocks to the API server.
	ahead map[string]time.Duration
	// unread contains an error for each forbidden resource.
	unread []error
	at     time.Time
}

// look reads all locks, or those with a name, in two requests: the Leases, which include members, and the metadata of ConfigMaps.
// One of both may be forbidden.
func (c *clients) look(ctx context.Context, namespace string, name ...string) (*seen, error) {
	options := metav1.ListOptions{}
	if len(name) > 0 {
		options.FieldSelector = "metadata.name=" + name[0]
	}
	s := &seen{members: map[string]bool{}, ahead: map[string]time.Duration{}}
	var leases, configMaps []inspect.Lock
	var errLeases, errConfigMaps error
	var both sync.WaitGroup
	both.Go(func() { leases, errLeases = c.leases(ctx, namespace, options, s) })
	both.Go(func() { configMaps, errConfigMaps = c.configMaps(ctx, namespace, options) })
	both.Wait()
	s.at = time.Now() //nolint:forbidigo // age of the read
	s.locks = append(configMaps, leases...)
	for i := range s.locks {
		s.locks[i].At = c.clock.Now()
	}
	for _, err := range []error{errLeases, errConfigMaps} {
		switch {
		case err == nil:
		case apierrors.IsForbidden(err):
			s.unread = append(s.unread, err)
		default:
			return nil, err
		}
	}
	if len(s.unread) == 2 {
		return nil, errors.Join(s.unread...)
	}
	return s, nil
}

// lock returns the lock of an election.
func (s *seen) lock(e inspect.Election) (inspect.Lock, bool) {
	for _, l := range s.locks {
		if l.Namespace == e.Namespace && l.Name == e.Name && l.Kind == e.Lock {
			return l, true
		}
	}
	return inspect.Lock{}, false
}

func (c *clients) leases(ctx context.Context, namespace string, options metav1.ListOptions, s *seen) (locks []inspect.Lock, _ error) {
	list, err := c.kube.CoordinationV1().Leases(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []members.Member
	for i := range list.Items {
		lease := &list.Items[i]
		if lock, ok := inspect.FromLease(lease); ok {
			locks = append(locks, lock)
			continue
		}
		// Invalid members are ignored.
		if m, err := members.Parse(lease); err == nil {
			all, s.members[m.Namespace] = append(all, m), true
			if len(lease.ManagedFields) > 0 { // the API server's time of the write
				s.ahead[m.Identity] = lease.Spec.RenewTime.Sub(m.Renewed)
			}
		}
	}
	s.candidates = inspect.Candidates(all, c.clock.Now())
	return locks, nil
}

func (c *clients) configMaps(ctx context.Context, namespace string, options metav1.ListOptions) (locks []inspect.Lock, _ error) {
	list, err := c.meta.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if lock, ok := inspect.FromConfigMap(&list.Items[i].ObjectMeta); ok {
			locks = append(locks, lock)
		}
	}
	return locks, nil
}

// defaultRevision returns the default revision. It is not Synced if reading the webhook is forbidden.
func (c *clients) defaultRevision(ctx context.Context) (k8sleaderelection.DefaultRevision, error) {
	_, revision, err := c.tag(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return k8sleaderelection.DefaultRevision{}, nil
	case err != nil:
		return k8sleaderelection.DefaultRevision{}, err
	}
	return k8sleaderelection.DefaultRevision{Synced: true, Revision: revision}, nil
}

// elections reads the elections of the selected namespaces.
func (p *Program) elections(ctx context.Context, c *clients, d k8sleaderelection.DefaultRevision) ([]inspect.Election, *seen, error) {
	s, err := c.look(ctx, c.at)
	if err != nil {
		return nil, nil, err
	}
	for _, err := range s.unread {
		fmt.Fprintln(p.ErrOut, inspect.Printable(fmt.Sprintf("warning: %v: elections with such locks are missing", err)))
	}
	return inspect.Elections(s.locks, s.candidates, s.members, d), s, nil
}

// nothing returns an error for a namespace without elections. It names the namespaces that have some.
func (p *Program) nothing(ctx context.Context, c *clients, s *seen) error {
	if len(s.unread) > 0 {
		return withCode(Refused, "elections are unknown: %w", errors.Join(s.unread...))
	}
	if p.all {
		return withCode(NotFound, "no elections found in any namespace")
	}
	if namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, c.at, metav1.GetOptions{}); err == nil && diagnosis.Terminating(namespace) != "" {
		return withCode(NotFound, "no elections found: %s", diagnosis.Terminating(namespace))
	}
	others := map[string]bool{}
	if all, err := c.look(ctx, metav1.NamespaceAll); err == nil {
		for _, e := range inspect.Elections(all.locks, nil, nil, k8sleaderelection.DefaultRevision{}) {
			others[e.Namespace] = true
		}
	}
	if len(others) == 0 {
		return withCode(NotFound, "no elections found in namespace %s; list all: %s list -A", c.at, name())
	}
	return withCode(NotFound, "no elections found in namespace %s; elections exist in: %s", c.at, strings.Join(slices.Sorted(maps.Keys(others)), ", "))
}

// one returns the elections of a name: two if a ConfigMap and a Lease exist.
func (p *Program) one(ctx context.Context, c *clients, name string, d k8sleaderelection.DefaultRevision) ([]inspect.Election, *seen, error) {
	all, s, err := p.elections(ctx, c, d)
	if err != nil {
		return nil, nil, err
	}
	var found []inspect.Election
	for _, e := range all {
		if e.Name == name {
			found = append(found, e)
		}
	}
	if len(found) > 0 {
		return found, s, nil
	}
	if len(s.unread) > 0 {
		return nil, nil, withCode(Refused, "election %s is unknown: %w", name, errors.Join(s.unread...))
	}
	return nil, nil, c.unknown(ctx, name)
}

// unknown returns a not-found error that names another namespace with such an election.
func (c *clients) unknown(ctx context.Context, election string) error {
	if s, err := c.look(ctx, metav1.NamespaceAll); err == nil {
		for _, l := range s.locks {
			if l.Name == election {
				return withCode(NotFound, "election %s not found in namespace %s; it exists in %s: use -n %s", election, c.at, l.Namespace, l.Namespace)
			}
		}
	}
	return withCode(NotFound, "election %s not found in namespace %s; list elections: %s list -A", election, c.at, name())
}
