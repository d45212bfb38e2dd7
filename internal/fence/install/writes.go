package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// write is a guarded write as a dry run.
type write struct {
	// verb is for messages.
	verb     string
	do       func(ctx context.Context, as dynamic.Interface) error
	warnings *warnings
}

// newWrite returns a write to one resource.
func newWrite(verb string, k kind, namespace string, do func(ctx context.Context, as dynamic.ResourceInterface) error) write {
	return write{verb: verb, warnings: &warnings{}, do: func(ctx context.Context, as dynamic.Interface) error {
		if !k.namespaced {
			return do(ctx, as.Resource(k.GroupVersionResource))
		}
		return do(ctx, as.Resource(k.GroupVersionResource).Namespace(namespace))
	}}
}

// createWrite returns a write that creates an object.
func createWrite(k kind, namespace string, object *unstructured.Unstructured) write {
	return newWrite("create", k, namespace, func(ctx context.Context, as dynamic.ResourceInterface) error {
		_, err := as.Create(ctx, object.DeepCopy(), dryCreate)
		return err
	})
}

// try sends the write with the client's credentials.
func (w write) try(ctx context.Context, client dynamic.Interface) (fence.Answer, error) {
	err := w.do(ctx, client)
	return answerOf(err), err
}

// warnings collects the warnings of an API server.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// warned returns Refused for an admitted write with a warning of a fence.
func (w write) warned(answer fence.Answer) fence.Answer {
	w.warnings.mu.Lock()
	defer w.warnings.mu.Unlock()
	about := func(text string) bool { return fence.Refuses([]byte(text)) }
	if answer == fence.Admitted && slices.ContainsFunc(w.warnings.texts, about) {
		return fence.Refused
	}
	return answer
}

// kind is a resource that an API server serves.
type kind struct {
	schema.GroupVersionResource
	namespaced bool
}

// kinds maps group and resource to the kinds that an API server serves.
type kinds map[schema.GroupResource]kind

func served(client kubernetes.Interface) (kinds, error) {
	lists, err := client.Discovery().ServerPreferredResources()
	if len(lists) == 0 && err != nil {
		return nil, err
	}
	all := kinds{}
	for _, l := range lists {
		version, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			all[schema.GroupResource{Group: version.Group, Resource: r.Name}] = kind{version.WithResource(r.Name), r.Namespaced}
		}
	}
	return all, nil
}

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryUpdate = metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
)

// writes returns the guarded writes of a resource that can be tried now, or the reason why there are none.
func (all kinds) writes(ctx context.Context, admin dynamic.Interface, p fence.Probe, resource string) ([]write, string) {
	main, sub, _ := strings.Cut(resource, "/")
	served, known := all[schema.GroupResource{Group: p.Guard.Group, Resource: main}]
	if !known {
		return nil, "the API server does not serve " + resource
	}
	if len(p.Guard.Versions) > 0 && !slices.Contains(p.Guard.Versions, "*") {
		served.Version = p.Guard.Versions[0]
	}
	example, err := served.example(ctx, admin, p)
	if err != nil {
		return nil, err.Error()
	}
	a := attempts{kind: served, sub: sub, example: example, probe: p}
	for _, operation := range p.Guard.Operations() {
		switch operation {
		case "CREATE":
			a.creates()
		case "UPDATE":
			a.updates(ctx, admin)
		case "DELETE":
			a.deletes()
		case "CONNECT":
			a.connects()
		}
	}
	return a.all, "no such object exists to test it with"
}

// example returns a guarded object, or nil if none exists.
func (k kind) example(ctx context.Context, admin dynamic.Interface, p fence.Probe) (*unstructured.Unstructured, error) {
	options := metav1.ListOptions{Limit: 1, LabelSelector: labels.SelectorFromSet(p.Guard.OwnLabels()).String()}
	for _, namespace := range append(slices.Clone(p.Guard.Namespaces), "")[:max(1, len(p.Guard.Namespaces))] {
		for _, name := range append(slices.Clone(p.Guard.Names), "")[:max(1, len(p.Guard.Names))] {
			if name != "" {
				options.FieldSelector = "metadata.name=" + name
			}
			list, err := admin.Resource(k.GroupVersionResource).Namespace(namespace).List(ctx, options)
			if err != nil {
				return nil, fmt.Errorf("find an object to test it with: %w", err)
			}
			if len(list.Items) > 0 {
				return &list.Items[0], nil
			}
		}
	}
	return nil, nil
}

// attempts collects the writes for one resource.
type attempts struct {
	kind    kind
	sub     string
	example *unstructured.Unstructured
	probe   fence.Probe
	all     []write
}

func (a *attempts) add(verb string, do func(ctx context.Context, as dynamic.ResourceInterface) error) {
	a.all = append(a.all, newWrite(verb, a.kind, a.namespace(), do))
}

// namespace returns the namespace of the writes.
func (a *attempts) namespace() string {
	if a.example != nil {
		return a.example.GetNamespace()
	}
	return append(slices.Clone(a.probe.Guard.Namespaces), a.probe.Namespace)[0]
}

// whole reports whether the writes concern the object itself.
func (a *attempts) whole() bool { return a.sub == "" || a.sub == "*" }

func (a *attempts) creates() {
	object := a.example.DeepCopy()
	switch {
	case !a.whole():
		a.createsSub()
		return
	case object == nil && a.probe.Object != nil && a.probe.Resource.Resource == a.kind.Resource:
		object = a.probe.Object.DeepCopy()
	case object == nil:
		return
	default:
		// The API server rejects the write after admission, because the object exists.
		object.SetResourceVersion("")
		object.SetUID("")
		object.SetManagedFields(nil)
		object.SetOwnerReferences(nil)
	}
	a.all = append(a.all, createWrite(a.kind, a.namespace(), object))
}

// createsSub adds subresources that can only be created.
func (a *attempts) createsSub() {
	if a.example == nil {
		return
	}
	body := map[string]any{"metadata": map[string]any{"name": a.example.GetName(), "namespace": a.example.GetNamespace()}}
	switch a.kind.Resource + "/" + a.sub {
	case "pods/eviction":
		body["apiVersion"], body["kind"] = "policy/v1", "Eviction"
		body["deleteOptions"] = map[string]any{"dryRun": []any{metav1.DryRunAll}}
	case "pods/binding":
		body["apiVersion"], body["kind"] = "v1", "Binding"
		body["target"] = map[string]any{"kind": "Node", "name": "incumbent-fence-probe"}
	case "serviceaccounts/token":
		body["apiVersion"], body["kind"] = "authentication.k8s.io/v1", "TokenRequest"
	default:
		return
	}
	a.add("create", func(ctx context.Context, as dynamic.ResourceInterface) error {
		_, err := as.Create(ctx, &unstructured.Unstructured{Object: body}, dryCreate, a.sub)
		return err
	})
}

func (a *attempts) updates(ctx context.Context, admin dynamic.Interface) {
	if a.example == nil {
		return
	}
	var subs []string
	if !a.whole() {
		subs = []string{a.sub}
	}
	name := a.example.GetName()
	object, err := admin.Resource(a.kind.GroupVersionResource).Namespace(a.example.GetNamespace()).Get(ctx, name, metav1.GetOptions{}, subs...)
	if err != nil {
		return // the subresource cannot be updated
	}
	object.SetResourceVersion("") // avoids conflicts with concurrent writes
	a.add("patch", func(ctx context.Context, as dynamic.ResourceInterface) error {
		_, err := as.Patch(ctx, name, types.MergePatchType, []byte("{}"), dryPatch, subs...)
		return err
	})
	a.add("update", func(ctx context.Context, as dynamic.ResourceInterface) error {
		_, err := as.Update(ctx, object.DeepCopy(), dryUpdate, subs...)
		return err
	})
}

func (a *attempts) deletes() {
	if a.example == nil || !a.whole() {
		return
	}
	name := a.example.GetName()
	a.add("delete", func(ctx context.Context, as dynamic.ResourceInterface) error {
		return as.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	})
}

// connects requests a connection without the upgrade. Policies evaluate the request, but no connection is opened.
func (a *attempts) connects() {
	if !slices.Contains([]string{"exec", "attach", "portforward"}, a.sub) {
		return
	}
	name := append(slices.Clone(a.probe.Guard.Names), "incumbent-fence-probe")[0]
	a.add("connect", func(ctx context.Context, as dynamic.ResourceInterface) error {
		body := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}}}
		_, err := as.Create(ctx, body, metav1.CreateOptions{}, a.sub)
		return err
	})
}
