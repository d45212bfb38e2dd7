package rollout

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/audit"
)

// CrashAPIServer kills the API server and starts it again. Then it writes the objects whose writes the killed API server
// may have stored without logging them. Otherwise the verdict would wait forever for writes that no controller repeats.
func (r *Rollout) CrashAPIServer(ctx context.Context) error {
	if err := r.Cluster.APIServer().Kill(); err != nil {
		return err
	}
	if _, err := r.History(); err != nil {
		return err
	}
	if err := r.logs[0].dropPart(); err != nil {
		return fmt.Errorf("repair audit log: %w", err)
	}
	if err := r.Cluster.APIServer().Start(ctx); err != nil {
		return err
	}
	h, err := r.History()
	if err != nil {
		return err
	}
	for _, w := range h.Unanswered() {
		if err := r.touch(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// wantedKinds are the kinds with a desired state.
var wantedKinds = map[string]schema.GroupVersion{
	"configmaps":  {Version: "v1"},
	"ingresses":   {Group: "networking.k8s.io", Version: "v1"},
	"gateways":    {Group: "gateway.networking.k8s.io", Version: "v1"},
	"httproutes":  {Group: "gateway.networking.k8s.io", Version: "v1"},
	"deployments": {Group: "apps", Version: "v1"},
}

// touch adds and removes an annotation, so that the log contains the object. It does not touch locks.
func (r *Rollout) touch(ctx context.Context, w audit.Write) error {
	version, wanted := wantedKinds[w.Kind()]
	name := w.Name
	if w.Kind() == "configmaps" {
		name = cmp.Or(name, bundleName) // the log has no name for a create
		wanted = name == bundleName
	}
	if !wanted || name == "" {
		return nil
	}
	objects := r.objects.Resource(version.WithResource(w.Kind())).Namespace(w.Namespace)
	for _, value := range []string{`"touched"`, "null"} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"upgrade.test/log":%s}}}`, value)
		_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("touch object of %v: %w", w, err)
		}
	}
	return nil
}
