package electiontest

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Clock returns a clock for Config.Clock that uses only package time, so that it counts the time of a synctest bubble.
func Clock() *k8sleaderelection.Clock {
	epoch := time.Now()
	return k8sleaderelection.NewClock(func() int64 { return int64(time.Since(epoch)) })
}

// validity is longer than a test.
const validity = 24 * time.Hour

// Term starts a term without an election. A run function gets such a context. The gate is open. end ends both, as the loss
// of a term does. It is called at the end of the test.
func Term(t testing.TB) (ctx context.Context, g *gate.Gate, end func()) {
	t.Helper()
	clock := Clock()
	g = gate.New("electiontest", clock)
	term := k8sleaderelection.Term{Transitions: 1, Token: 1}
	g.Set(term, clock.Now().Plus(validity))
	ctx, cancel := context.WithCancelCause(k8sleaderelection.ContextWithTerm(t.Context(), term))
	end = sync.OnceFunc(func() {
		g.Set(k8sleaderelection.Term{}, k8sleaderelection.Validity{})
		cancel(k8sleaderelection.ErrNotLeading)
	})
	t.Cleanup(end)
	return ctx, g, end
}

// GateFake makes a fake client, such as *fake.Clientset, reject writes with gate.ErrNotLeader while the gate is closed. Call it after the reactors of
// the test were added. A fake clientset does not pass the context of a request, so the term of the caller is not checked.
func GateFake(g *gate.Gate, fake clienttesting.FakeClient) {
	fake.PrependReactor("*", "*", func(action clienttesting.Action) (handled bool, result runtime.Object, err error) {
		switch action.GetVerb() {
		case "get", "list", "watch":
			return false, nil, nil
		}
		if err := g.Check(); err != nil {
			return true, nil, err
		}
		return false, nil, nil
	})
}
