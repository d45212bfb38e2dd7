package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// Discovered is an installed set with its declarations.
type Discovered struct {
	Name         string
	Declarations []fence.Declaration
	// Set has the policies of the declarations. It is empty if Err is set.
	Set fence.Set
	// Repair is the command that installs missing policies again.
	Repair string
	// Err is the reason why the installed policies have no common declarations.
	Err error
}

var errDiffer = errors.New("its policies do not have the same declarations, because an installation was interrupted or is in progress")

// Discover returns the sets of installed policies that guard locks in the namespace.
func Discover(namespace string, there map[string][]admissionv1.ValidatingAdmissionPolicy) (found []Discovered) {
	for _, set := range slices.Sorted(maps.Keys(there)) {
		if slices.ContainsFunc(there[set], func(p admissionv1.ValidatingAdmissionPolicy) bool { return fence.Concerns(&p, namespace) }) {
			found = append(found, discovered(set, namespace, there[set]))
		}
	}
	return found
}

// bySet returns the installed policies of each set.
func bySet(ctx context.Context, client kubernetes.Interface) (map[string][]admissionv1.ValidatingAdmissionPolicy, error) {
	list, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{LabelSelector: fence.SetLabel})
	if err != nil {
		return nil, err
	}
	return BySet(list.Items), nil
}

// BySet returns policies by the name of their set. Policies without a set are left out.
func BySet(policies []admissionv1.ValidatingAdmissionPolicy) map[string][]admissionv1.ValidatingAdmissionPolicy {
	there := map[string][]admissionv1.ValidatingAdmissionPolicy{}
	for _, p := range policies {
		if set := p.Labels[fence.SetLabel]; set != "" {
			there[set] = append(there[set], p)
		}
	}
	return there
}

// discovered returns the set of installed policies.
func discovered(set, namespace string, installed []admissionv1.ValidatingAdmissionPolicy) Discovered {
	d := Discovered{Name: set, Repair: fmt.Sprintf("electionctl fence install -n %s --set %s", namespace, set)}
	if d.Set, d.Declarations, d.Err = storedSet(set, "", installed); d.Err == nil {
		d.Repair += " --stored"
	}
	for _, p := range installed {
		d.Repair = cmp.Or(Upgrade(p.Annotations), d.Repair)
	}
	return d
}

// Upgrade returns the command that installs the Helm release of an object with the annotations again, or "".
func Upgrade(annotations map[string]string) string {
	release := annotations["meta.helm.sh/release-name"]
	if release == "" {
		return ""
	}
	return fmt.Sprintf("helm upgrade %s %s --namespace %s --reset-then-reuse-values", release, Chart("pilot"), annotations["meta.helm.sh/release-namespace"])
}

// storedSet returns a set as the declarations in its installed policies describe it. mode, if set, replaces their modes.
func storedSet(name string, mode fence.Mode, installed []admissionv1.ValidatingAdmissionPolicy) (set fence.Set, declarations []fence.Declaration, err error) {
	if declarations, err = declarationsOf(installed); err == nil {
		set, err = fence.Render(name, inMode(mode, declarations)...)
	}
	return set, declarations, err
}

// declarationsOf returns the declarations that the policies of a set contain.
func declarationsOf(installed []admissionv1.ValidatingAdmissionPolicy) ([]fence.Declaration, error) {
	byLock := map[string]fence.Declaration{}
	for _, p := range installed {
		all, err := fence.Declarations(&p)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 && !strings.HasPrefix(p.Name, barrierPrefix(p.Labels[fence.SetLabel])) {
			return nil, errDiffer
		}
		for _, d := range all {
			lock := strings.Join(d.Locks(), ",")
			if other, known := byLock[lock]; known && !reflect.DeepEqual(d, other) {
				return nil, errDiffer
			}
			byLock[lock] = d
		}
	}
	var declarations []fence.Declaration
	for _, lock := range slices.Sorted(maps.Keys(byLock)) {
		declarations = append(declarations, byLock[lock])
	}
	return declarations, nil
}

// stored returns the declarations of the installed set. Mode, if set, replaces their modes.
func (c Config) stored(ctx context.Context, client kubernetes.Interface) (fence.Set, []fence.Declaration, error) {
	set := c.withDefaults().Set
	there, err := bySet(ctx, client)
	if err != nil {
		return fence.Set{}, nil, err
	}
	if len(there[set]) == 0 {
		return fence.Set{}, nil, fmt.Errorf("--stored: fence %q is not installed", set)
	}
	rendered, declarations, err := storedSet(set, fence.Mode(c.Mode), there[set])
	if err != nil {
		return fence.Set{}, nil, fmt.Errorf("--stored: fence %q: %w. Install it with its declarations", set, err)
	}
	return rendered, declarations, nil
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
