package rollout

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// CrashAPIServer kills the API server, starts it again, and has the audit log show what the killed one may have stored
// without having logged its answer. What is there already nobody writes again, and the verdict would wait for it for ever.
func (r *Rollout) CrashAPIServer(ctx context.Context) error {
	if err := r.Cluster.APIServer().Kill(); err != nil {
		return err
	}
	if err := r.Cluster.APIServer().Start(ctx); err != nil {
		return err
	}
	h, err := r.history()
	if err != nil {
		return err
	}
	for _, w := range h.Unanswered {
		if err := r.show(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// wantedKinds are those whose objects should be of some form in the end.
var wantedKinds = map[string]schema.GroupVersion{
	"configmaps":  {Version: "v1"},
	"ingresses":   {Group: "networking.k8s.io", Version: "v1"},
	"gateways":    {Group: "gateway.networking.k8s.io", Version: "v1"},
	"httproutes":  {Group: "gateway.networking.k8s.io", Version: "v1"},
	"deployments": {Group: "apps", Version: "v1"},
}

// show has the log show an object as it is, if it is there: by a note that is taken away again, so that it stays as it was.
// Locks are left alone, the verdict knows of writes to them that were not answered.
func (r *Rollout) show(ctx context.Context, w verdict.Write) error {
	version, wanted := wantedKinds[w.Kind()]
	name := w.Name
	if w.Kind() == "configmaps" {
		name = cmp.Or(name, bundleName) // the log has no name of what is created
		wanted = name == bundleName
	}
	if !wanted || name == "" {
		return nil
	}
	objects := r.objects.Resource(version.WithResource(w.Kind())).Namespace(w.Namespace)
	for _, value := range []string{`"shown"`, "null"} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"upgrade.test/log":%s}}}`, value)
		_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("having the log show %v: %w", w, err)
		}
	}
	return nil
}
