package electors

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/cluster"
)

// Member is a candidate in its own process.
type Member struct {
	*Candidate
	Process *Process
	// Relay has the connections of the process, if EnterThrough has started it.
	Relay *relay.Relay
}

// Enter starts a candidate in its own process. logger receives the logs of incumbent.
func Enter(ctx context.Context, library Library, base *rest.Config, spec Spec, logger *slog.Logger) (*Member, error) {
	p, err := NewProcess(library, base, logger)
	if err != nil {
		return nil, err
	}
	c, err := p.Candidate(spec)
	if err != nil {
		return nil, err
	}
	c.Start(ctx)
	return &Member{Candidate: c, Process: p}, nil
}

// EnterThrough is Enter with a relay between the process and the API server.
func EnterThrough(ctx context.Context, library Library, base *rest.Config, spec Spec, logger *slog.Logger) (*Member, error) {
	base = rest.CopyConfig(base)
	r, err := relay.Insert(ctx, base)
	if err != nil {
		return nil, err
	}
	m, err := Enter(ctx, library, base, spec, logger)
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	m.Relay = r
	return m, nil
}

// Cut closes the relay, if there is one. After that, the process cannot reach the API server.
func (m *Member) Cut() {
	if m.Relay != nil {
		_ = m.Relay.Close()
	}
}

// End stops the candidate and its process. The candidate must not wait for a response any more.
func (m *Member) End() {
	m.Stop()
	m.Process.Close()
	m.Cut()
}

// DefaultTag is the webhook with the default revision.
const DefaultTag = "istio-revision-tag-default"

// SetDefault sets the default revision and returns when its request was sent.
func SetDefault(ctx context.Context, admin kubernetes.Interface, revision string) (sent time.Time, err error) {
	if sent, err = cluster.SetRevision(ctx, admin, DefaultTag, revision); err != nil {
		return sent, fmt.Errorf("set default revision %s: %w", revision, err)
	}
	return sent, nil
}
