package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindsEvery is how often a row looks whether the API server knows its kinds. Nothing tells.
const kindsEvery = 5 * time.Second

// known waits until the API server knows all kinds, and says once which are missing. What it
// cannot find out because the server does not answer, or refuses, is for the controller's
// caches to report.
func (s *site) known(ctx context.Context, kinds []schema.GroupVersionResource, log *slog.Logger) error {
	ticker := time.NewTicker(kindsEvery)
	defer ticker.Stop()
	said := false
	for {
		missing := s.missing(kinds)
		if len(missing) == 0 {
			if said {
				log.Info("the API server knows all kinds now")
			}
			return nil
		}
		if !said {
			said = true
			log.Warn("the API server does not know some kinds, waiting for their definitions", "missing", missing)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the definitions of %v: %w", missing, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// missing are the kinds that the API server says it does not know.
func (s *site) missing(kinds []schema.GroupVersionResource) (names []string) {
	for _, kind := range kinds {
		list, err := s.own.Kube().Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
		found := err != nil && !apierrors.IsNotFound(err)
		if err == nil {
			for _, r := range list.APIResources {
				found = found || r.Name == kind.Resource
			}
		}
		if !found {
			names = append(names, kind.Resource+"."+kind.Group)
		}
	}
	return names
}
