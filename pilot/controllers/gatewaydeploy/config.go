package gatewaydeploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	// defaultTemplateName is the name of the ConfigMap in the system namespace that replaces the built-in
	// template.
	defaultTemplateName = "istio-gateway-template"
	// templateKey is the key of the template in the ConfigMap.
	templateKey = "template.yaml"
	// proxyImage is the image of Istio's own templates. A webhook replaces it by the proxy image.
	proxyImage = "auto"
)

// Config configures a Controller.
type Config struct {
	// Namespace is the system namespace, which contains the template and the class defaults.
	Namespace string
	// Revision is the revision of the control plane, which is set on the Pods. Default: "default".
	Revision string
	// OverlayFields lists more fields that the overlays of Gateways may change, such as "deployment.spec.template.spec.volumes". By
	// default they change no field with which a Pod gets rights, code, files or addresses.
	OverlayFields []string
	// Objects lists objects that Gateways get also without an overlay: "podDisruptionBudget" (with two or more replicas) and "networkPolicy".
	Objects []string
	// IsMine reports whether a Gateway belongs to this revision. The metadata includes the label
	// istio.io/rev of the namespace if the Gateway has none. Call EnqueueAll when its results change. If nil,
	// all Gateways belong to this revision.
	IsMine func(metav1.ObjectMeta) bool
	// Await blocks until the inputs of IsMine are up to date. It is called before each reconcile. Optional.
	Await func(ctx context.Context)
	// Event records problems on the Gateway. If nil, problems are only logged.
	Event reconcile.Event
	// Logger logs failures and their ends. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Revision = cmp.Or(c.Revision, "default")
	if c.IsMine == nil {
		c.IsMine = func(metav1.ObjectMeta) bool { return true }
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	var errs []error
	for _, problem := range validation.IsDNS1123Label(c.Namespace) {
		errs = append(errs, fmt.Errorf("system namespace %q: %s", c.Namespace, problem))
	}
	_, err := ParseKinds(c.Objects)
	return errors.Join(append(errs, err, ValidateFields(c.OverlayFields))...)
}
