package gatewaydeploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	// DefaultTemplateName is the ConfigMap in the system namespace that takes the place of the program's template, and
	// TemplateKey is its key.
	DefaultTemplateName = "istio-gateway-template"
	TemplateKey         = "template.yaml"
	// defaultImage is what Istio's own templates have: a webhook of the cluster puts the proxy's image in its place.
	defaultImage = "auto"
)

// Config of a Controller.
type Config struct {
	// Namespace is the system namespace, for the template and the defaults of classes.
	Namespace string
	// Revision is the control plane's, which stands on the Pods; "" means default.
	Revision string
	// IsMine tells whether a Gateway belongs to this revision; nil means that all do. It is given the Gateway's metadata
	// with the label istio.io/rev of its namespace, where the Gateway has none. When its answers change, Refresh has to be
	// called.
	IsMine func(metav1.ObjectMeta) bool
	// Await, when set, returns when IsMine goes by what is so at present: it is asked before each Gateway. A
	// revisions.Awaiter has one.
	Await func(ctx context.Context)
	// Template is the name of the ConfigMap with the template; "" means DefaultTemplateName.
	Template string
	// Image is the proxy's; "" means auto.
	Image string
	// Event receives what is wrong, on the Gateway. nil: problems are only logged.
	Event reconcile.Event
	// Workers is how many Gateways may be worked on at once; 0 means 4.
	Workers int
	// Logger receives what begins and ends to fail; nil means slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Revision = cmp.Or(c.Revision, "default")
	if c.IsMine == nil {
		c.IsMine = func(metav1.ObjectMeta) bool { return true }
	}
	c.Template = cmp.Or(c.Template, DefaultTemplateName)
	c.Image = cmp.Or(c.Image, defaultImage)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate reports all that cannot be meant.
func (c Config) Validate() error {
	var errs []error
	for _, problem := range validation.IsDNS1123Label(c.Namespace) {
		errs = append(errs, fmt.Errorf("the system namespace %q: %s", c.Namespace, problem))
	}
	if c.Template != "" {
		if wrong := validation.IsDNS1123Subdomain(c.Template); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("the template's ConfigMap %q: %s", c.Template, strings.Join(wrong, ", ")))
		}
	}
	return errors.Join(append(errs, reconcile.ValidateWorkers(c.Workers))...)
}
