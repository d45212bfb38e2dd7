package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"

	// Unused. It keeps the module with the definitions in go.mod.
	_ "sigs.k8s.io/gateway-api/pkg/consts"

	"incumbent.dev/incumbent/pkg/kube"
)

const gatewayModule = "sigs.k8s.io/gateway-api"

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// LoadGatewayAPI installs the standard resources of the Gateway API in the version of go.mod, and waits until they are
// served. Existing definitions are not changed. It needs the go command and Options.Module.
func (c *Cluster) LoadGatewayAPI(ctx context.Context) error {
	module, err := ModuleFolder(ctx, c.options.Module, gatewayModule)
	if err != nil {
		return err
	}
	return c.LoadDefinitions(ctx, filepath.Join(module, "config", "crd", "standard"))
}

// ModuleFolder returns the folder of a module, in the version of the module that the folder belongs to.
func ModuleFolder(ctx context.Context, folder, module string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir = folder
	output, err := command.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return strings.TrimSpace(string(output)), nil
}

// LoadDefinitions installs the CustomResourceDefinitions in the YAML files of a folder, and waits until they are
// served. It ignores other objects.
func (c *Cluster) LoadDefinitions(ctx context.Context, folder string) error {
	found, err := readDefinitions(folder)
	if err != nil {
		return fmt.Errorf("read resource definitions: %w", err)
	}
	client, err := connect(c.admin)
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	for _, definition := range found {
		err := retry.OnError(patiently, internalError, func() error {
			_, err := client.Dynamic().Resource(definitions).Create(ctx, definition, metav1.CreateOptions{})
			return err
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("installing %s: %w", definition.GetName(), err)
		}
	}
	for _, definition := range found {
		for _, resource := range served(definition) {
			if err := c.awaitServed(ctx, client, resource); err != nil {
				return err
			}
		}
	}
	return nil
}

// internalError reports whether a server failed, for example if etcd was too slow. It may have stored the object.
func internalError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError
}

// readDefinitions reads the definitions in the YAML files of a folder.
func readDefinitions(folder string) ([]*unstructured.Unstructured, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
		for {
			object := &unstructured.Unstructured{}
			err := documents.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if object.GetKind() == "CustomResourceDefinition" {
				found = append(found, object)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no definitions in %s", folder)
	}
	return found, nil
}

// served returns the resources of a definition, one for each served version.
func served(definition *unstructured.Unstructured) (resources []schema.GroupVersionResource) {
	text := func(object map[string]any, path ...string) string {
		found, _, _ := unstructured.NestedString(object, path...) // empty with an error
		return found
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions") // empty with an error
	for _, entry := range versions {
		version, _ := entry.(map[string]any)
		if version["served"] != true {
			continue
		}
		resources = append(resources, schema.GroupVersionResource{
			Group: text(definition.Object, "spec", "group"), Version: text(version, "name"), Resource: text(definition.Object, "spec", "names", "plural"),
		})
	}
	return resources
}

// awaitServed waits until the API server lists the objects of a resource and names the resource in its discovery document. Both
// begin later than the condition Established.
func (c *Cluster) awaitServed(ctx context.Context, client kube.Client, resource schema.GroupVersionResource) error {
	return c.api.await(ctx, resource.String()+" is served", func(ctx context.Context) error {
		if _, err := client.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		_, lists, err := client.Kube().Discovery().ServerGroupsAndResources()
		documented, documentErr := discovery.GroupVersionResources(lists)
		if _, found := documented[resource]; found {
			return nil
		}
		return errors.Join(err, documentErr, errors.New("the discovery document has no such resource"))
	})
}
