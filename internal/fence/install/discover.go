package install

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// Discovered is an installed set with the configuration that renders it.
type Discovered struct {
	Config Config
	// Set is the rendered set. It is empty if the installed policies are not known to be rendered from Config.Elections.
	Set fence.Set
	// Repair is the command that installs missing policies again.
	Repair string
}

// Discover returns the sets that guard locks in the namespace, by the labels and contents of their policies.
func (c Config) Discover(ctx context.Context, client kubernetes.Interface) (found []Discovered, _ error) {
	there, err := bySet(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, set := range slices.Sorted(maps.Keys(there)) {
		if d := c.discovered(set, there[set]); len(d.Config.Elections) > 0 {
			found = append(found, d)
		}
	}
	return found, nil
}

// bySet returns the installed policies of each set.
func bySet(ctx context.Context, client kubernetes.Interface) (map[string][]admissionv1.ValidatingAdmissionPolicy, error) {
	list, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{LabelSelector: fence.SetLabel})
	if err != nil {
		return nil, err
	}
	there := map[string][]admissionv1.ValidatingAdmissionPolicy{}
	for _, p := range list.Items {
		set := p.Labels[fence.SetLabel]
		there[set] = append(there[set], p)
	}
	return there, nil
}

// discovered returns the variant of the configuration that renders most of the installed policies.
func (c Config) discovered(set string, installed []admissionv1.ValidatingAdmissionPolicy) (best Discovered) {
	names, locks := map[string]bool{}, map[string]bool{}
	base := c.withDefaults()
	base.Set = set
	base.ServiceAccounts = nil
	for _, p := range installed {
		names[p.Name] = true
		for _, lock := range listed(&p, fence.LocksAnnotation) {
			locks[lock] = true
		}
		base.ServiceAccounts = append(base.ServiceAccounts, listed(&p, fence.AccountsAnnotation)...)
	}
	slices.Sort(base.ServiceAccounts)
	base.ServiceAccounts = slices.Compact(base.ServiceAccounts)
	base = base.ofLocks(locks)
	for _, p := range installed {
		base = base.ofVariables(p.Spec.Variables)
	}
	best = Discovered{Config: base, Repair: base.repair(installed)}
	most := 0
	for _, variant := range base.variants() {
		rendered, _, err := variant.render()
		if err != nil {
			continue
		}
		same := 0
		for _, p := range rendered.All() {
			if names[p.Name()] {
				same++
			}
		}
		if same > most {
			most = same
			best.Config = variant
			best.Set = rendered
		}
	}
	return best
}

// ofLocks keeps the elections and revisions of the locks.
func (c Config) ofLocks(locks map[string]bool) Config {
	all := c.Elections
	c.Elections = nil
	c.Revisions = nil
	for _, e := range all {
		there := false
		for _, lock := range slices.Sorted(maps.Keys(locks)) {
			kind, name, _ := strings.Cut(lock, " "+c.Namespace+"/")
			revision, own := strings.CutPrefix(name, e.ID+"-")
			switch {
			case e.PerRevision && own:
				there = true
				c.Revisions = append(c.Revisions, revision)
			case !e.PerRevision && name == e.ID:
				there = true
				if !e.Lease {
					c.Lock = kind
				}
			}
		}
		if there {
			c.Elections = append(c.Elections, e)
		}
	}
	slices.Sort(c.Revisions)
	c.Revisions = slices.Compact(c.Revisions)
	return c
}

var (
	quoted = regexp.MustCompile(`'([^'\\]*)'`)
	prefix = regexp.MustCompile(`startsWith\('system:serviceaccount:([^':]+):([^'\\]*)'\)`)
)

// ofVariables adds the other accounts and the coordinators, which only the guards of locks contain.
func (c Config) ofVariables(variables []admissionv1.Variable) Config {
	add := func(all []string, one string) []string {
		if slices.Contains(all, one) {
			return all
		}
		return append(all, one)
	}
	for _, v := range variables {
		if v.Name != "candidate" && v.Name != "coordinator" {
			continue
		}
		for _, found := range quoted.FindAllStringSubmatch(prefix.ReplaceAllString(v.Expression, ""), -1) {
			namespace, account, serviceAccount := strings.Cut(strings.TrimPrefix(found[1], "system:serviceaccount:"), ":")
			switch name := namespace + "/" + account; {
			case v.Name == "coordinator" && found[1] != "":
				c.Coordinators = add(c.Coordinators, found[1])
			case serviceAccount && strings.HasPrefix(found[1], "system:serviceaccount:") && !slices.Contains(c.ServiceAccounts, name):
				c.Others = add(c.Others, name)
			}
		}
		for _, found := range prefix.FindAllStringSubmatch(v.Expression, -1) {
			c.Others = add(c.Others, found[1]+"/"+found[2]+"*")
		}
	}
	return c
}

// variants returns configurations for the properties that no label contains.
func (c Config) variants() (all []Config) {
	for _, mode := range []fence.Mode{fence.Deny, fence.Warn, fence.Audit} {
		for _, coordinated := range []bool{false, true} {
			for _, without := range []bool{false, true} {
				for _, lock := range []string{c.Lock, lockMulti} {
					one := c
					one.Mode = string(mode)
					one.Coordinated = coordinated
					one.WithoutLockGuard = without
					one.Lock = lock
					all = append(all, one)
				}
			}
		}
	}
	return all
}

// repair returns the command that installs the set again.
func (c Config) repair(installed []admissionv1.ValidatingAdmissionPolicy) string {
	for _, p := range installed {
		if release := p.Annotations["meta.helm.sh/release-name"]; release != "" {
			return fmt.Sprintf("helm upgrade %s %s --namespace %s --reset-then-reuse-values", release, Chart("pilot"), p.Annotations["meta.helm.sh/release-namespace"])
		}
	}
	command := fmt.Sprintf("electionctl fence install -n %s --set %s --lock %s --service-account %s", c.Namespace, c.Set, c.Lock, strings.Join(c.ServiceAccounts, ","))
	for _, f := range []struct {
		flag   string
		values []string
	}{{"revisions", c.Revisions}, {"other-service-account", c.Others}, {"coordinator", c.Coordinators}} {
		if len(f.values) > 0 {
			command += fmt.Sprintf(" --%s '%s'", f.flag, strings.Join(f.values, ","))
		}
	}
	return command
}

// Chart returns the path of a chart of the repository for a command that a user runs: absolute if the chart exists below the working
// directory or next to the folder of this program, otherwise relative to the root of the repository.
func Chart(name string) string {
	path := filepath.Join("deploy", "charts", name)
	self, _ := os.Executable() // if unknown, only the working directory counts
	if there, err := filepath.EvalSymlinks(self); err == nil {
		self = there
	}
	for _, candidate := range []string{path, filepath.Join(filepath.Dir(self), "..", path)} {
		if _, err := os.Stat(filepath.Join(candidate, "Chart.yaml")); err != nil {
			continue
		}
		if absolute, err := filepath.Abs(candidate); err == nil {
			return absolute
		}
	}
	return path
}
