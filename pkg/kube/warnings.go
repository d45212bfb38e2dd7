package kube

import (
	"context"
	"strings"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/client-go/rest"
)

// dropWarnings drops warnings about coordination.k8s.io/v1beta1. An API server adds a deprecation warning to each response about
// LeaseCandidates, although no other version exists.
func dropWarnings(config *rest.Config) {
	next := config.WarningHandlerWithContext
	switch {
	case next != nil:
	case config.WarningHandler != nil:
		next = withoutContext{config.WarningHandler}
	default:
		next = withoutContext{rest.WarningLogger{}}
	}
	config.WarningHandler = nil
	if _, dropped := next.(filter); !dropped {
		config.WarningHandlerWithContext = filter{next}
	}
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
