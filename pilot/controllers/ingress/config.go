package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// Mode says which Ingresses are of our class, by the names that Istio has for it.
type Mode string

const (
	// Off: none is.
	Off Mode = "OFF"
	// Strict: those whose annotation kubernetes.io/ingress.class is the class, and, without the
	// annotation, those whose IngressClass has the controller istio.io/ingress-controller.
	Strict Mode = "STRICT"
	// Default: those, and all that have neither the annotation nor an IngressClass that exists.
	Default Mode = "DEFAULT"
)

const (
	// ControllerName is the controller of an IngressClass whose Ingresses are ours.
	ControllerName = "istio.io/ingress-controller"

	// ReasonUnknownClass and ReasonNotWritten are the reasons of Events on an Ingress: it names an IngressClass that
	// does not exist; its status cannot be written.
	ReasonUnknownClass = "UnknownClass"
	ReasonNotWritten   = "StatusNotWritten"

	classAnnotation = "kubernetes.io/ingress.class"
	name            = "ingress controller"
)

// ParseMode reads a Mode in any case.
func ParseMode(text string) (Mode, error) {
	for _, known := range []Mode{Off, Strict, Default} {
		if strings.EqualFold(text, string(known)) {
			return known, nil
		}
	}
	return "", fmt.Errorf("%q is none of %s, %s, %s", text, Off, Strict, Default)
}

// Config of a Controller.
type Config struct {
	// Mode and Class say which Ingresses are ours.
	Mode  Mode
	Class string
	// Service is the gateway's: its addresses are those of the Ingresses.
	Service types.NamespacedName
	// Workers is how many writes may be under way at once; 0 means 4.
	Workers int
	// Event receives why a status is not written, on the Ingress; nil means nobody does.
	Event reconcile.Event
	// Logger receives what begins and ends to fail; nil means slog.Default().
	Logger *slog.Logger
}

// Validate reports all that cannot be meant.
func (c Config) Validate() error {
	var errs []error
	if _, err := ParseMode(string(c.Mode)); err != nil {
		errs = append(errs, fmt.Errorf("mode: %w", err))
	}
	if c.Class == "" {
		errs = append(errs, errors.New("the class is empty: name one, such as istio"))
	}
	for _, problem := range validation.IsDNS1123Label(c.Service.Namespace) {
		errs = append(errs, fmt.Errorf("the service's namespace %q: %s", c.Service.Namespace, problem))
	}
	for _, problem := range validation.IsDNS1035Label(c.Service.Name) {
		errs = append(errs, fmt.Errorf("the service %q: %s", c.Service.Name, problem))
	}
	return errors.Join(append(errs, reconcile.ValidateWorkers(c.Workers))...)
}
