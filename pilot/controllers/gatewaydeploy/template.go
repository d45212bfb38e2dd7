package gatewaydeploy

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed template.yaml
var embedded string

// maxRendered bounds the output of a template. API servers accept less.
const maxRendered = 1 << 20

// values contains the values for a template.
type values struct {
	// Gateway, Class, Namespace and UID identify the Gateway.
	Gateway, Class, Namespace, UID string
	// Name is the name of the Service and the Deployment.
	Name, ServiceAccount string
	// Labels and Annotations are set on the objects, PodLabels and PodAnnotations on the Pods.
	Labels, Annotations, PodLabels, PodAnnotations map[string]string
	// Selector selects the Pods of the Gateway.
	Selector map[string]string
	// Ports are the ports of the Service. The first is the status port.
	Ports []corev1.ServicePort
	// Listen contains the port numbers without the status port, separated by commas. The number of a TCP and a UDP port is there once.
	Listen string
	// ServiceType is LoadBalancer unless the Gateway sets another type.
	ServiceType string
	// Address is the requested IP address, or "".
	Address string
	// Image is the proxy image, Revision the revision of the control plane.
	Image, Revision string
}

// Template renders the objects of a Gateway.
type workloadTemplate struct {
	source string
	parsed *template.Template
}

// defaultTemplate returns the built-in template.
func defaultTemplate() *workloadTemplate {
	t, err := parseTemplate("built-in template", embedded)
	if err != nil {
		panic(err) // excluded by a test
	}
	return t
}

// parseTemplate parses a template. source describes its origin in errors.
func parseTemplate(source, text string) (*workloadTemplate, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("%s is empty; delete it to use the built-in template", source)
	}
	parsed, err := template.New("gateway").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if err := limit(parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return &workloadTemplate{source: source, parsed: parsed}, nil
}

// render returns the rendered documents in order.
func (t *workloadTemplate) render(values values) ([]map[string]any, error) {
	var out bounded
	execution, err := t.parsed.Clone()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.source, err)
	}
	work := budget{left: maxCost}
	err = execution.Funcs(work.functions()).Execute(&out, values)
	if errors.Is(err, errCost) {
		err = errCost
	}
	if err != nil {
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
		if len(document) > 0 { // not only comments
			found = append(found, document)
		}
	}
}

// decode decodes one YAML document, with integers as int64. Duplicate keys are an error.
func decode(text []byte) (map[string]any, error) {
	content, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := utiljson.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	return document, nil
}

// bounded is a buffer with a size limit.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("output exceeds %d bytes", maxRendered)
	}
	return b.Buffer.Write(p)
}
