package namespace

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	// ConfigMapName is the name of the ConfigMap with the bundle in each namespace.
	ConfigMapName = "istio-ca-root-cert"
	// BundleKey is the key of the bundle in the ConfigMap. Its value is PEM.
	BundleKey = "root-cert.pem"
	// reasonNotWritten is the reason of the Event on a ConfigMap that cannot be written, or that another writer reverts.
	reasonNotWritten = "BundleNotWritten"

	// configLabel marks created ConfigMaps in the same way as istiod.
	configLabel = "istio.io/config"

	// bundleInterval is the interval at which the bundle file is read.
	bundleInterval = time.Second
	name           = "namespace controller"
)

// DefaultExcluded returns the namespaces that get no bundle by default, because no mesh
// workload runs there.
func DefaultExcluded() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}
}

// Config configures a Controller.
type Config struct {
	// BundleFile is the path of the CA bundle, one or more PEM certificates.
	BundleFile string
	// Excluded lists the namespaces that get no bundle. If nil, DefaultExcluded applies. An empty
	// list excludes no namespace.
	Excluded []string
	// DiscoverySelectors are label selectors. Namespaces that match none get no bundle. If empty, all namespaces match.
	DiscoverySelectors []string
	// Event records on the ConfigMap of a namespace why it is not written. Optional.
	Event reconcile.Event
	// Logger logs failures and their ends. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Excluded == nil {
		c.Excluded = DefaultExcluded()
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate returns all errors of the configuration. It does not check the file, which may be
// created later.
func (c Config) Validate() error {
	var errs []error
	if c.BundleFile == "" {
		errs = append(errs, errors.New("CA bundle file is not set: set it to a file of PEM certificates"))
	}
	for _, name := range c.Excluded {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, fmt.Errorf("excluded namespace %q: %s", name, problem))
		}
	}
	if _, err := c.selectors(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// selectors returns the parsed discovery selectors, and the errors of all.
func (c Config) selectors() (all []labels.Selector, err error) {
	for _, text := range c.DiscoverySelectors {
		selector, problem := labels.Parse(text)
		switch {
		case problem != nil:
			err = errors.Join(err, fmt.Errorf("discovery selector %q: %w", text, problem))
		case selector.Empty():
			err = errors.Join(err, fmt.Errorf("discovery selector %q selects all namespaces: omit it, or set a label, for example istio-discovery=enabled", text))
		}
		all = append(all, selector)
	}
	return all, err
}
