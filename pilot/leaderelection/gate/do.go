package gate

import "context"

// Do calls write if the gate is open, for stores that are not accessed through an http.RoundTripper: databases, and fakes in
// tests. Like a request through Transport, the write is rejected with ErrNotLeader outside the term of ctx, and Drain waits for
// it. The context of write ends with ctx and with the validity. If the validity ends first, an error of write becomes
// ErrOutcomeUnknown.
func (g *Gate) Do(ctx context.Context, write func(ctx context.Context) error) error {
	pass, err := g.admit(ctx)
	if err != nil {
		g.byGate.Inc()
		return err
	}
	defer pass.done()
	own, cancel := context.WithCancelCause(pass.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	if err = write(own); err != nil && pass.ctx.Err() != nil {
		return g.unknown(pass, ctx)
	}
	return err
}
