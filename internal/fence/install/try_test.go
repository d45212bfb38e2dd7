package install

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/client-go/dynamic"

	"incumbent.dev/incumbent/internal/fence"
)

// A probe's write, dry, and what its answer says.
func TestTryingAProbe(t *testing.T) {
	j := newJudging(t)
	client, err := dynamic.NewForConfig(impersonate(j.config(), "sys/pilot", "pod-2"))
	if err != nil {
		t.Fatal(err)
	}
	p := fence.Probes(guarding(configMap()))[0]
	for text, x := range map[string]struct {
		answers func(attempt) error
		want    Answer
	}{
		"admitted": {func(attempt) error { return nil }, Admitted},
		"refused":  {byPolicy, Refused},
		"unclear":  {byRBAC, Unclear},
	} {
		j.answers = x.answers
		got, err := Try(t.Context(), client, p)
		if got != x.want || got.String() != text || (err == nil) != (x.want == Admitted) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if len(j.attempts) != 3 || j.attempts[0].String() != `create /api/v1/namespaces/apps/configmaps by system:serviceaccount:sys:pilot, pod "pod-2"` {
		t.Errorf("%v", j.attempts)
	}
	p.Object = nil
	if got, err := Try(t.Context(), client, p); got != Unclear || err == nil || err.Error() != "no write is known that would try configmaps" {
		t.Errorf("%v, %v", got, err)
	}
	if answerOf(errors.New("no answer")) != Unclear || answerOf(fmt.Errorf("wrapped: %w", byPolicy(attempt{}))) != Refused {
		t.Error("what is no answer is one")
	}
}
