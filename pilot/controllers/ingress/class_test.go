package ingress

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOurs checks Istio's rule for each mode, annotation and IngressClass. The revision label has no
// effect.
func TestOurs(t *testing.T) {
	both := []Mode{Strict, Default}
	theirs := &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}}
	mine := &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "istio.io/ingress-controller"}}
	annotated := func(class string) map[string]string { return map[string]string{"kubernetes.io/ingress.class": class} }
	for name, test := range map[string]struct {
		annotations map[string]string
		named       *networkingv1.IngressClass // nil: not set, or does not exist
		modes       []Mode                     // matching modes
	}{
		"our annotation":                        {annotated("istio"), nil, both},
		"our annotation, their IngressClass":    {annotated("istio"), theirs, both},
		"another annotation":                    {annotated("nginx"), nil, nil},
		"another annotation, our IngressClass":  {annotated("nginx"), mine, nil},
		"an empty annotation":                   {annotated(""), nil, nil},
		"an empty annotation, our IngressClass": {annotated(""), mine, nil},
		"our annotation in other case":          {annotated("Istio"), nil, nil},
		"our IngressClass":                      {nil, mine, both},
		"their IngressClass":                    {nil, theirs, nil},
		"neither, or a missing IngressClass":    {nil, nil, []Mode{Default}},
		"unrelated annotation":                  {map[string]string{"class": "istio"}, nil, []Mode{Default}},
	} {
		for _, mode := range []Mode{Off, Strict, Default} {
			for _, revision := range []string{"", "canary"} {
				i := slimIngress(&networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations, Labels: map[string]string{"istio.io/rev": revision}}})
				if got, want := ours(mode, "istio", i, test.named), slices.Contains(test.modes, mode); got != want {
					t.Errorf("%s, mode %s, revision %q: %v, want %v", name, mode, revision, got, want)
				}
			}
		}
	}
}

func TestUnknownClass(t *testing.T) {
	name, mine := "later", &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: ControllerName}}
	for what, test := range map[string]struct {
		mode      Mode
		annotated bool
		class     *string
		named     *networkingv1.IngressClass
		want      bool
	}{
		"missing":                  {Strict, false, &name, nil, true},
		"exists":                   {Strict, false, &name, mine, false},
		"not set":                  {Strict, false, nil, nil, false},
		"missing, with annotation": {Strict, true, &name, nil, false},
		"missing, mode DEFAULT":    {Default, false, &name, nil, false},
		"missing, mode OFF":        {Off, false, &name, nil, false},
	} {
		i := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: test.class}}
		if test.annotated {
			i.Annotations = map[string]string{classAnnotation: ""}
		}
		if got := unknownClass(test.mode, i, test.named); (got != nil) != test.want || got != nil && (got.Reason != reasonUnknownClass || !strings.Contains(got.Message, name)) {
			t.Errorf("%s: %v", what, got)
		}
	}
}
