package namespace

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	// ConfigMapName is the ConfigMap that carries the bundle in each namespace.
	ConfigMapName = "istio-ca-root-cert"
	// BundleKey is its key with the bundle, as PEM.
	BundleKey = "root-cert.pem"

	// configLabel marks the ConfigMaps made here, as istiod marks its own.
	configLabel = "istio.io/config"

	defaultBundleInterval = time.Second
	name                  = "namespace controller"
)

// DefaultExcluded are the namespaces that get no bundle unless Config says otherwise:
// no workload of a mesh runs there.
func DefaultExcluded() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}
}

// Config of a Controller.
type Config struct {
	// BundleFile is the path of the CA bundle: one or more certificates as PEM.
	BundleFile string
	// Excluded namespaces are left alone; nil means DefaultExcluded, an empty list none.
	Excluded []string
	// BundleInterval is how often the file is read; 0 means each second.
	BundleInterval time.Duration
	// Workers is how many writes may be under way at once; 0 means 4.
	Workers int
	// Logger receives what begins and ends to fail; nil means slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Excluded == nil {
		c.Excluded = DefaultExcluded()
	}
	c.BundleInterval = cmp.Or(c.BundleInterval, defaultBundleInterval)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate reports all that cannot be meant. It does not look at the file, which may
// come later.
func (c Config) Validate() error {
	var errs []error
	if c.BundleFile == "" {
		errs = append(errs, errors.New("the CA bundle's file is missing: name a file of PEM certificates"))
	}
	for _, name := range c.Excluded {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, fmt.Errorf("excluded namespace %q: %s", name, problem))
		}
	}
	if c.BundleInterval < 0 {
		errs = append(errs, fmt.Errorf("the interval to read the CA bundle in, %v, is negative", c.BundleInterval))
	}
	return errors.Join(append(errs, reconcile.ValidateWorkers(c.Workers))...)
}
