package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
)

// FenceConfig says which fence, and in which cluster. Errors about it name the flags of
// cmd/pilot.
type FenceConfig struct {
	// Kubernetes says where the API server is; RESTConfig, when set, is used instead.
	Kubernetes kube.Source
	RESTConfig *rest.Config
	// Set is the fence's name in the cluster; "" means the namespace's.
	Set string
	// File holds declarations as YAML, "elections" with a list of fence.Declaration. "" means
	// the elections that a server takes part in, by the fields below.
	File string
	// Namespace of the control plane, with its locks; "" means istio-system.
	Namespace string
	// Lock is "configmap", "lease" or "multi", which means the lease; "" means configmap.
	Lock string
	// ServiceAccounts are the servers', as name or namespace/name; none means "pilot-{revision}", those
	// that package manifests makes. fence.RevisionWord in them stands for each of the revisions.
	ServiceAccounts []string
	// Others may hold the locks as well, as name or namespace/name, where a * at the end stands for any
	// rest; what they write is for another fence to judge.
	Others []string
	// Revisions that there are, for elections within one and for the accounts.
	Revisions []string
	// DisableGatewayAPI and DisableGatewayDeployment are as the servers have them: what no leader
	// of theirs writes, they must not refuse others.
	DisableGatewayAPI, DisableGatewayDeployment bool
	// Coordinators may write candidates in as holders.
	Coordinators []string
	// Coordinated: a coordinator chooses who leads the elections that all revisions share (Config.ElectionStrategy). It needs Lock "lease".
	Coordinated bool
	// WithoutLockGuard leaves the locks to RBAC.
	WithoutLockGuard bool
	// Mode is what becomes of writes that are found wrong: deny, warn or audit; "" means what
	// each declaration of File says, or deny.
	Mode string
	// APIServers are the addresses of further API servers. Install and Remove wait for each,
	// Verify asks each. Without any, those are taken that the Service default/kubernetes lists.
	APIServers []string
	// TakeOver takes locks over that another set guards.
	TakeOver bool
	// AllowUnclear accepts that something could not be tried, Strict accepts nothing else than
	// what was tried and held.
	AllowUnclear, Strict bool
	// Output is how Verify and Report write what they found: table, json or yaml; "" means table.
	Output string
	// AuditLog is the file that Report reads; "-" or "" means the standard input.
	AuditLog string
	// Wait is how long an installation waits until the fence stands; 0 means not at all.
	Wait time.Duration
	// multi: the lease is one of two locks.
	multi bool
}

func (c FenceConfig) withDefaults() FenceConfig {
	if c.Namespace == "" {
		c.Namespace = "istio-system"
	}
	if c.Set == "" {
		c.Set = c.Namespace
	}
	switch c.Lock {
	case "":
		c.Lock = string(fence.ConfigMap)
	case leaderelection.MultiLock.String():
		c.Lock, c.multi = string(fence.Lease), true // which says who leads, once nobody elects by ConfigMap alone
	}
	if len(c.ServiceAccounts) == 0 {
		c.ServiceAccounts = []string{"pilot-" + fence.RevisionWord}
	}
	return c
}

// Declarations are what the fence guards.
func (c FenceConfig) Declarations() ([]fence.Declaration, error) {
	servers := Config{DisableGatewayAPI: c.DisableGatewayAPI, DisableGatewayDeployment: c.DisableGatewayDeployment}
	all, err := c.withDefaults().declarations(servers.rows())
	for i := range all {
		if c.Mode != "" {
			all[i].Mode = fence.Mode(c.Mode)
		}
	}
	return all, err
}

func (c FenceConfig) declarations(rows []election) ([]fence.Declaration, error) {
	if c.File != "" {
		return declared(c.File)
	}
	var all []fence.Declaration
	for _, row := range rows {
		if len(row.writes) == 0 {
			continue
		}
		d := fence.Declaration{
			Election: row.id, Namespace: c.Namespace, Lock: fence.LockKind(c.Lock), Multi: c.multi, ServiceAccounts: c.accounts(c.ServiceAccounts),
			Others: c.accounts(c.Others), Coordinators: c.Coordinators, Guards: row.writes, WithoutLockGuard: c.WithoutLockGuard, Members: true,
		}
		if row.lease {
			d.Lock, d.Multi = fence.Lease, false
		}
		d.Coordinated = c.Coordinated && !row.perRevision && !row.uncoordinated
		if row.perRevision {
			if len(c.Revisions) == 0 {
				return nil, fmt.Errorf("election %s is held within each revision: name them with --revisions", row.id)
			}
			d.Revisions = c.Revisions
		} else {
			d.ServiceAccounts, d.Others = c.expanded(c.ServiceAccounts), c.expanded(c.Others)
		}
		all = append(all, d)
	}
	return all, nil
}

// accounts are with their namespaces.
func (c FenceConfig) accounts(names []string) []string {
	var all []string
	for _, account := range names {
		if !strings.Contains(account, "/") {
			account = c.Namespace + "/" + account
		}
		all = append(all, account)
	}
	return all
}

// expanded are those of all revisions, which share an election.
func (c FenceConfig) expanded(names []string) []string {
	var all []string
	for _, account := range c.accounts(names) {
		if !strings.Contains(account, fence.RevisionWord) || len(c.Revisions) == 0 {
			all = append(all, account)
			continue
		}
		for _, revision := range c.Revisions {
			all = append(all, strings.ReplaceAll(account, fence.RevisionWord, revision))
		}
	}
	return all
}

// declared reads a file of declarations.
func declared(name string) ([]fence.Declaration, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	var file struct {
		Elections []fence.Declaration `json:"elections"`
	}
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return nil, fmt.Errorf("--file=%s: %w; give a list of declarations under elections", name, err)
	}
	if len(file.Elections) == 0 {
		return nil, fmt.Errorf("--file=%s declares nothing: give a list of declarations under elections", name)
	}
	return file.Elections, nil
}

func (c FenceConfig) render() (fence.Set, []fence.Declaration, error) {
	declarations, err := c.Declarations()
	if err != nil {
		return fence.Set{}, nil, err
	}
	set, err := fence.Render(c.withDefaults().Set, declarations...)
	return set, declarations, err
}

// Render writes the policies and bindings as YAML, in the order in which to install them.
func (c FenceConfig) Render(out io.Writer) error {
	set, _, err := c.render()
	if err != nil {
		return err
	}
	for _, p := range set.All() {
		for _, object := range []runtime.Object{p.Policy, p.Binding} {
			text, err := plainYAML(object)
			if err != nil {
				return fmt.Errorf("encoding %s: %w", p.Name(), err)
			}
			if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// plainYAML leaves out what only a server fills in.
func plainYAML(object runtime.Object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	if meta, ok := content["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return yaml.Marshal(content)
}

// connect makes a client for what an administrator does, and what ends it.
func (c FenceConfig) connect() (kube.Client, func(), error) {
	config, err := Config{Kubernetes: c.Kubernetes, RESTConfig: c.RESTConfig}.restConfig()
	if err != nil {
		return nil, nil, err
	}
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithUserAgent(userAgent), kube.WithOwnConnections())
	if err != nil {
		return nil, nil, err
	}
	return client, func() { kube.CloseIdleConnections(client) }, nil
}

// options are those of an installation that these further API servers have to see, and what ends
// its connections.
func (c FenceConfig) options(further []*rest.Config) (options install.Options, end func(), err error) {
	options.TakeOver = c.TakeOver
	var ends []func()
	end = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, there := range further {
		client, err := kube.NewClient(there, kube.WithRateLimit(-1, 0), kube.WithUserAgent(userAgent), kube.WithOwnConnections())
		if err != nil {
			end()
			return options, nil, fmt.Errorf("--api-server=%s: %w", there.Host, err)
		}
		ends = append(ends, func() { kube.CloseIdleConnections(client) })
		options.Servers = append(options.Servers, client.Kube())
	}
	return options, end, nil
}

// Install puts the fence up, or brings it up to date, and says what it did. It returns
// when every API server acts on it and what was tried holds, or with what does not after Wait.
func (c FenceConfig) Install(ctx context.Context, out io.Writer) error {
	set, declarations, err := c.render()
	if err != nil {
		return err
	}
	client, done, err := c.connect()
	if err != nil {
		return err
	}
	defer done()
	further, unasked := c.apiServers(ctx, client)
	if err := install.Judge(unasked, install.Judging{AllowUnclear: c.AllowUnclear, Strict: c.Strict}); len(unasked) > 0 && err != nil {
		// What stands must not go before each API server has what replaces it.
		return fmt.Errorf("nothing was changed: %w", err)
	}
	options, end, err := c.options(further)
	if err != nil {
		return err
	}
	defer end()
	changes, err := install.Apply(ctx, client.Kube(), set, options)
	for _, change := range changes {
		fmt.Fprintln(out, change)
	}
	switch {
	case err == nil && c.Wait > 0:
	case len(unasked) > 0:
		return errors.Join(c.print(out, unasked), err)
	default:
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf("not within %v", c.Wait))
	defer cancel()
	findings, err := c.await(ctx, append([]*rest.Config{client.RESTConfig()}, further...), set, declarations)
	return errors.Join(c.print(out, append(unasked, findings...)), err)
}

// lookAgain lies between two looks at a fence that was just installed.
const lookAgain = 200 * time.Millisecond

func (c FenceConfig) await(ctx context.Context, servers []*rest.Config, set fence.Set, declarations []fence.Declaration) ([]install.Finding, error) {
	for {
		findings, err := look(ctx, servers, set, declarations)
		if err == nil {
			err = install.Judge(findings, install.Judging{AllowUnclear: true})
		}
		if err == nil { // what is unclear does not become clear by waiting
			return findings, c.judge(findings)
		}
		again := time.NewTimer(lookAgain)
		select {
		case <-ctx.Done():
			again.Stop()
			return findings, errors.Join(err, context.Cause(ctx))
		case <-again.C:
		}
	}
}

// look asks each API server.
func look(ctx context.Context, servers []*rest.Config, set fence.Set, declarations []fence.Declaration) ([]install.Finding, error) {
	var all []install.Finding
	for _, there := range servers {
		findings, err := install.Verify(ctx, there, set, declarations...)
		all = append(all, findings...)
		if err != nil {
			return all, fmt.Errorf("API server %s: %w", there.Host, err)
		}
	}
	return all, nil
}

func (c FenceConfig) judge(findings []install.Finding) error {
	return install.Judge(findings, install.Judging{AllowUnclear: c.AllowUnclear, Strict: c.Strict})
}

// Verify says what of the fence holds and what does not; the latter is an error.
func (c FenceConfig) Verify(ctx context.Context, out io.Writer) error {
	set, declarations, err := c.render()
	if err != nil {
		return err
	}
	client, done, err := c.connect()
	if err != nil {
		return err
	}
	defer done()
	further, findings := c.apiServers(ctx, client)
	found, err := look(ctx, append([]*rest.Config{client.RESTConfig()}, further...), set, declarations)
	findings = append(findings, found...)
	if printed := c.print(out, findings); printed != nil || err != nil {
		return errors.Join(printed, err)
	}
	return c.judge(findings)
}

// Remove takes the fence away, and says what went.
func (c FenceConfig) Remove(ctx context.Context, out io.Writer) error {
	client, done, err := c.connect()
	if err != nil {
		return err
	}
	defer done()
	further, unasked := c.apiServers(ctx, client)
	options, end, err := c.options(further)
	if err != nil {
		return err
	}
	defer end()
	for _, f := range unasked {
		fmt.Fprintln(out, f)
	}
	changes, err := install.Remove(ctx, client.Kube(), c.withDefaults().Set, options)
	for _, change := range changes {
		fmt.Fprintln(out, change)
	}
	if err == nil && len(changes) == 0 {
		fmt.Fprintf(out, "there is no fence %q\n", c.withDefaults().Set)
	}
	return err
}
