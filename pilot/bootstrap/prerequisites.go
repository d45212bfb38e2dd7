package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/apirequest"
)

// kindsEvery is the interval at which a row checks whether its kinds are served. There is no event for that.
const kindsEvery = 5 * time.Second

// awaitKinds waits until the API server serves all kinds. It logs the missing kinds when they change, and whether only older versions
// are served. If discovery fails, a kind counts as served: the caches of the controller report that.
func (s *site) awaitKinds(ctx context.Context, lock string, kinds []schema.GroupVersionResource, log *slog.Logger) error {
	var reported apirequest.Reported[string]
	for {
		missing := s.missing(kinds)
		if len(kinds) > 0 {
			s.metrics.missing.WithLabelValues(lock).Set(float64(len(missing)))
		}
		names := s.describe(ctx, missing)
		_, changed := reported.Change(lock, strings.Join(names, " "))
		if len(missing) == 0 {
			if changed {
				log.Info("all CustomResourceDefinitions are served")
			}
			return nil
		}
		if changed {
			log.Warn("waiting for missing CustomResourceDefinitions", "missing", names)
		}
		if err := apirequest.Pause(ctx, kindsEvery); err != nil {
			return fmt.Errorf("wait for the CustomResourceDefinitions of %v: %w", names, err)
		}
	}
}

// missing returns the kinds that the API server does not serve.
func (s *site) missing(kinds []schema.GroupVersionResource) (all []schema.GroupVersionResource) {
	for _, kind := range kinds {
		if served, known := s.serves(kind); known && !served {
			all = append(all, kind)
		}
	}
	return all
}

// serves reports whether the API server serves a kind. known is false if discovery fails.
func (s *site) serves(kind schema.GroupVersionResource) (served, known bool) {
	list, err := s.own.Kube().Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return false, apierrors.IsNotFound(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }), true
}

// describe returns the names of kinds, with other versions of them that are served.
func (s *site) describe(ctx context.Context, kinds []schema.GroupVersionResource) (names []string) {
	for _, kind := range kinds {
		name := kind.Resource + "." + kind.Group
		if versions := s.versions(ctx, kind); len(versions) > 0 {
			name = fmt.Sprintf("%s/%s (only %s is served: install a newer definition)", name, kind.Version, strings.Join(versions, ", "))
		}
		names = append(names, name)
	}
	return names
}

// versions returns the served versions of a kind. It is empty if discovery fails.
func (s *site) versions(ctx context.Context, kind schema.GroupVersionResource) (all []string) {
	body, err := s.own.Kube().Discovery().RESTClient().Get().AbsPath("/apis", kind.Group).Do(ctx).Raw()
	var group metav1.APIGroup
	if err != nil || json.Unmarshal(body, &group) != nil {
		return nil
	}
	for _, v := range group.Versions {
		if served, _ := s.serves(kind.GroupResource().WithVersion(v.Version)); served {
			all = append(all, v.Version)
		}
	}
	return all
}
