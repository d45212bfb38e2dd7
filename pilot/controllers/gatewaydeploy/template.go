package gatewaydeploy

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed template.yaml
var embedded string

// maxRendered is more than any API server takes, and a bound for a template that does not end.
const maxRendered = 1 << 20

// Values are what a template is rendered with.
type Values struct {
	// Gateway, Class and Namespace name the Gateway; UID is its.
	Gateway, Class, Namespace, UID string
	// Name is that of Service and Deployment.
	Name, ServiceAccount string
	// Labels and Annotations are for all objects; Pods get PodLabels and PodAnnotations too.
	Labels, Annotations, PodLabels, PodAnnotations map[string]string
	// Selector chooses the Gateway's Pods.
	Selector map[string]string
	// Ports are the Service's, the status port first. Listen are their numbers without it, separated by commas.
	Ports  []corev1.ServicePort
	Listen string
	// ServiceType is LoadBalancer unless the Gateway says otherwise; Address is the one that it asks for, "" for none.
	ServiceType, Address string
	// Image is that of the proxy, Revision the control plane's.
	Image, Revision string
}

// Template says what is made for a Gateway.
type Template struct {
	source string
	parsed *template.Template
}

// DefaultTemplate is the one in the program.
func DefaultTemplate() *Template {
	t, err := ParseTemplate("the program's own template", embedded)
	if err != nil {
		panic(err) // a test parses it
	}
	return t
}

// ParseTemplate reads a template. source says in errors where it comes from.
func ParseTemplate(source, text string) (*Template, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("%s is empty: delete it to have the program's own template", source)
	}
	parsed, err := template.New("gateway").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return &Template{source: source, parsed: parsed}, nil
}

// functions are what a template may call beside text/template's own. JSON is YAML, and quotes what needs it.
var functions = template.FuncMap{
	"quote": func(text string) (string, error) { return toJSON(text) },
	"merge": func(all ...map[string]string) map[string]string {
		to := map[string]string{}
		for _, from := range all {
			maps.Copy(to, from)
		}
		return to
	},
	"toJson": toJSON,
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// render gives the documents of what the template says, in its order.
func (t *Template) render(values Values) ([]map[string]any, error) {
	var out bounded
	if err := t.parsed.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("%s: %w", t.source, err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(&out.Buffer))
	var found []map[string]any
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", t.source, n, err)
		}
		document, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", t.source, n, err)
		}
		if len(document) > 0 { // else nothing but comments
			found = append(found, document)
		}
	}
}

// decode reads one YAML document, with whole numbers as the API machinery has them. A key that stands in it twice is
// an error.
func decode(text []byte) (map[string]any, error) {
	content, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := utiljson.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("it is no object: %w", err)
	}
	return document, nil
}

// bounded is a buffer that refuses to grow without end.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("it renders more than %d bytes", maxRendered)
	}
	return b.Buffer.Write(p)
}
