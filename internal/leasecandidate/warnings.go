package leasecandidate

import (
	"context"
	"strings"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/client-go/rest"
)

// WithoutWarnings returns a copy of config whose client drops warnings about coordination.k8s.io/v1beta1. An API server adds a
// deprecation warning to each response about LeaseCandidates, although no other version exists.
func WithoutWarnings(config *rest.Config) *rest.Config {
	filtered := rest.CopyConfig(config)
	if next := config.WarningHandlerWithContext; next != nil {
		filtered.WarningHandlerWithContext = filter{next}
		return filtered
	}
	var next rest.WarningHandler = rest.WarningLogger{}
	if config.WarningHandler != nil {
		next = config.WarningHandler
	}
	filtered.WarningHandler = nil
	filtered.WarningHandlerWithContext = filter{withoutContext{next}}
	return filtered
}

type filter struct {
	next rest.WarningHandlerWithContext
}

func (f filter) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if !strings.Contains(text, coordinationv1beta1.SchemeGroupVersion.String()) {
		f.next.HandleWarningHeaderWithContext(ctx, code, agent, text)
	}
}

type withoutContext struct{ rest.WarningHandler }

func (w withoutContext) HandleWarningHeaderWithContext(_ context.Context, code int, agent, text string) {
	w.HandleWarningHeader(code, agent, text)
}
