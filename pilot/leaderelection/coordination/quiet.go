package coordination

import (
	"context"
	"strings"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/client-go/rest"
)

// Quiet is a copy of config that does not warn of LeaseCandidates: an API server adds to each answer about them that the
// version, of which there is no other, is to go. All other warnings go where they went.
func Quiet(config *rest.Config) *rest.Config {
	quiet := rest.CopyConfig(config)
	if next := config.WarningHandlerWithContext; next != nil {
		quiet.WarningHandlerWithContext = quietly{next}
		return quiet
	}
	var next rest.WarningHandler = rest.WarningLogger{}
	if config.WarningHandler != nil {
		next = config.WarningHandler
	}
	quiet.WarningHandler, quiet.WarningHandlerWithContext = nil, quietly{plain{next}}
	return quiet
}

type quietly struct {
	next rest.WarningHandlerWithContext
}

func (q quietly) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if !strings.Contains(text, coordinationv1beta1.SchemeGroupVersion.String()) {
		q.next.HandleWarningHeaderWithContext(ctx, code, agent, text)
	}
}

type plain struct{ rest.WarningHandler }

func (p plain) HandleWarningHeaderWithContext(_ context.Context, code int, agent, text string) {
	p.HandleWarningHeader(code, agent, text)
}
