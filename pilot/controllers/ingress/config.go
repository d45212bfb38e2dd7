package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// Mode selects the Ingresses of the class. Istio defines its values.
type Mode string

const (
	// Off selects no Ingress.
	Off Mode = "OFF"
	// Strict selects Ingresses whose annotation kubernetes.io/ingress.class is the class and, without
	// the annotation, Ingresses whose IngressClass has the controller istio.io/ingress-controller.
	Strict Mode = "STRICT"
	// Default also selects Ingresses with neither the annotation nor an existing IngressClass.
	Default Mode = "DEFAULT"
)

const (
	// ControllerName is the controller of our IngressClasses.
	ControllerName = "istio.io/ingress-controller"

	// reasonUnknownClass is the reason of the Event on an Ingress whose IngressClass does not exist.
	reasonUnknownClass = "UnknownClass"
	// reasonNotWritten is the reason of the Event on an Ingress whose status cannot be written.
	reasonNotWritten = "StatusNotWritten"

	classAnnotation = "kubernetes.io/ingress.class"
	name            = "ingress controller"
)

// ParseMode returns the Mode with this name, ignoring case.
func ParseMode(text string) (Mode, error) {
	for _, known := range []Mode{Off, Strict, Default} {
		if strings.EqualFold(text, string(known)) {
			return known, nil
		}
	}
	return "", fmt.Errorf("unknown mode %q: use %s, %s or %s", text, Off, Strict, Default)
}

// Config configures a Controller.
type Config struct {
	// Mode and Class select the Ingresses.
	Mode  Mode
	Class string
	// Service is the Service of the gateway. Its addresses are written into the Ingresses.
	Service types.NamespacedName
	// Pods are labels of the Pods of the gateway. If set, the name of Service is empty, and the addresses are those of the
	// nodes of these Pods in its namespace.
	Pods labels.Set
	// Event records on an Ingress why its status is not written. Optional.
	Event reconcile.Event
	// Logger logs failures and their ends. Default: slog.Default().
	Logger *slog.Logger
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	var errs []error
	if _, err := ParseMode(string(c.Mode)); err != nil {
		errs = append(errs, err)
	}
	if c.Class == "" {
		errs = append(errs, errors.New("class is not set: set a class, for example istio"))
	}
	for _, problem := range validation.IsDNS1123Label(c.Service.Namespace) {
		errs = append(errs, fmt.Errorf("service namespace %q: %s", c.Service.Namespace, problem))
	}
	if c.Pods == nil {
		for _, problem := range validation.IsDNS1035Label(c.Service.Name) {
			errs = append(errs, fmt.Errorf("service %q: %s", c.Service.Name, problem))
		}
	}
	return errors.Join(errs...)
}
