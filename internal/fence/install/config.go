package install

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pkg/kube"
)

// Config describes a fence and the cluster of it. Errors name the flags of the fence command.
type Config struct {
	// Kubernetes locates the API server. RESTConfig, if set, is used instead.
	Kubernetes kube.Source
	RESTConfig *rest.Config
	// Set is the name of the fence in the cluster. The default is Namespace.
	Set string
	// File is a YAML file with a list of fence.Declaration under "elections". If empty, Elections are fenced.
	File string
	// Elections are the elections of the servers.
	Elections []Election
	// Stored makes Install use the declarations of the installed set instead of File and Elections.
	Stored bool
	// Namespace of the control plane and its locks. The default is istio-system.
	Namespace string
	// Lock is "configmap", "lease" or "multi". With multi, elections move from ConfigMaps to Leases: the ConfigMap is the parameter
	// of the guards, because a candidate of an earlier step does not hold the Lease, and both locks are guarded. The default is configmap.
	Lock string
	// ServiceAccounts of the servers, as name or namespace/name. fence.RevisionWord in them is replaced by each
	// revision. The default is "pilot-{revision}", which the chart creates.
	ServiceAccounts []string
	// Others are further service accounts that may hold the locks, as name or namespace/name. A * at the end
	// matches any suffix. This fence does not guard their other writes.
	Others []string
	// Revisions that exist. Elections within a revision and RevisionWord need them.
	Revisions []string
	// Coordinators are users that may write a candidate into a lock as its holder.
	Coordinators []string
	// Coordinated is true if a coordinator chooses the leaders of the elections that all revisions share. It
	// needs Lock "lease".
	Coordinated bool
	// WithoutLockGuard leaves the protection of the locks to RBAC.
	WithoutLockGuard bool
	// Mode is deny, warn or audit. The default is the mode of each declaration, or deny.
	Mode string
	// APIServers are the addresses of further API servers that Install, Verify and Remove check. The default is
	// the addresses behind the Service default/kubernetes.
	APIServers []string
	// Replace allows Install to replace the guards of another set for the same locks.
	Replace bool
	Judging
	// Output is the format of Verify and Report: table, json or yaml. The default is table.
	Output string
	// AuditLog is the file that Report reads. "-" or "" is the standard input.
	AuditLog string
	// Keep makes Install skip the check before it, and keep a fence that its self-test rejects.
	Keep bool
	// Verbose makes the table of Install and Verify contain the checks that passed.
	Verbose bool
	// Wait is how long Install waits until the fence is in effect. 0 means that Install does not wait.
	Wait time.Duration
}

const lockMulti = "multi"

// Election is an election of the servers and the writes that only its leader may make. Without Guards, the fence guards the lock only.
type Election struct {
	ID string
	// Lease is true if the lock is a Lease regardless of Config.Lock.
	Lease bool
	// PerRevision is true if each revision has its own lock.
	PerRevision bool
	// Coordinated is true if Config.Coordinated applies to the election.
	Coordinated bool
	Guards      []fence.Guard
}

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = "istio-system"
	}
	if c.Set == "" {
		c.Set = c.Namespace
	}
	if c.Lock == "" {
		c.Lock = string(record.ConfigMap)
	}
	if len(c.ServiceAccounts) == 0 {
		c.ServiceAccounts = []string{"pilot-" + fence.RevisionWord}
	}
	return c
}

// Declarations returns what the fence guards.
func (c Config) Declarations() ([]fence.Declaration, error) {
	all, err := c.declarations()
	return inMode(fence.Mode(c.Mode), all), err
}

// inMode sets the mode of declarations, if there is one.
func inMode(mode fence.Mode, all []fence.Declaration) []fence.Declaration {
	for i := range all {
		all[i].Mode = cmp.Or(mode, all[i].Mode)
	}
	return all
}

func (c Config) declarations() ([]fence.Declaration, error) {
	if c.File != "" {
		return readDeclarations(c.File)
	}
	c = c.withDefaults()
	var all []fence.Declaration
	for _, e := range c.Elections {
		if c.WithoutLockGuard && len(e.Guards) == 0 {
			continue
		}
		if e.PerRevision && len(c.Revisions) == 0 {
			return nil, fmt.Errorf("election %s has a lock per revision: give the revisions with --revisions", e.ID)
		}
		d := c.declaration(e)
		all = append(all, d)
		if c.Lock == lockMulti && !e.Lease && !c.WithoutLockGuard {
			d.Lock = record.Lease
			d.Guards = nil
			all = append(all, d)
		}
	}
	return all, nil
}

func (c Config) declaration(e Election) fence.Declaration {
	d := fence.Declaration{
		Election: e.ID, Namespace: c.Namespace, Lock: record.Kind(c.Lock),
		ServiceAccounts: c.qualified(c.ServiceAccounts), Others: c.qualified(c.Others), Coordinators: c.Coordinators,
		Coordinated: c.Coordinated && e.Coordinated, Guards: e.Guards, WithoutLockGuard: c.WithoutLockGuard, Members: true,
	}
	if e.Lease {
		d.Lock = record.Lease
	} else if c.Lock == lockMulti {
		d.Lock = record.ConfigMap
	}
	if e.PerRevision {
		d.Revisions = c.Revisions
		return d
	}
	d.ServiceAccounts = fence.ForRevisions(d.ServiceAccounts, c.Revisions)
	d.Others = fence.ForRevisions(d.Others, c.Revisions)
	return d
}

// qualified returns service accounts as namespace/name.
func (c Config) qualified(names []string) []string {
	var all []string
	for _, account := range names {
		if !strings.Contains(account, "/") {
			account = c.Namespace + "/" + account
		}
		all = append(all, account)
	}
	return all
}

func readDeclarations(name string) ([]fence.Declaration, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	var file struct {
		Elections []fence.Declaration `json:"elections"`
	}
	err = yaml.UnmarshalStrict(raw, &file)
	if err == nil && len(file.Elections) == 0 {
		err = errors.New("the file has no declarations")
	}
	if err != nil {
		return nil, fmt.Errorf("--file=%s: %w; give a list of declarations under elections", name, err)
	}
	return file.Elections, nil
}

func (c Config) render() (fence.Set, []fence.Declaration, error) {
	declarations, err := c.Declarations()
	if err != nil {
		return fence.Set{}, nil, err
	}
	set, err := fence.Render(c.withDefaults().Set, declarations...)
	return set, declarations, err
}

// Render writes the policies and bindings as YAML, in installation order.
func (c Config) Render(out io.Writer) error {
	set, _, err := c.render()
	if err != nil {
		return err
	}
	for _, p := range set.All() {
		for _, object := range []runtime.Object{p.Policy, p.Binding} {
			content, err := withoutServerFields(object)
			if err != nil {
				return fmt.Errorf("encode %s: %w", p.Name(), err)
			}
			text, err := yaml.Marshal(content)
			if err != nil {
				return fmt.Errorf("encode %s: %w", p.Name(), err)
			}
			if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutServerFields returns an object without the fields that the API server sets.
func withoutServerFields(object runtime.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	if meta, ok := content["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return content, nil
}
