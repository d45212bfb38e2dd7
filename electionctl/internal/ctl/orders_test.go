package ctl

import (
	"context"
	"strings"
	"sync"
	"testing"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

func TestOrders(t *testing.T) {
	for kind, lock := range map[string]leaderelection.LockType{"lease": leaderelection.LockTypeLease, "configmap": leaderelection.LockTypeConfigMap} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := newEnvironment(t)
			e.elect("work", "a", "stable", lock, nil)
			e.shows("work", "a", "leads")
			e.pod("b", "canary")
			e.elect("work", "b", "canary", lock, nil)

			e.expect(e.run("pause", "work"), misused, "", "use --yes")
			e.expect(e.answer("n\n", true, "pause", "work"), Refused, "", "Continue? [y/N]", "nothing was changed")
			e.expect(e.answer("y\n", true, "pause", "work", "--for", "5m", "--reason", "backup"), Done, "set a hold for 5m (pause)", "a will keep the lock for 5m0s")
			if got := e.run("explain", "work").out; !strings.Contains(got, "pause for 300 s by kubernetes-admin: backup") && !strings.Contains(got, ": backup") {
				t.Error(got)
			}
			e.expect(e.run("resume", "work", "--yes"), Done, "hold removed")
			e.expect(e.run("transfer", "work", "--to", "a", "--yes"), Refused, "", "leads already")
			e.expect(e.run("transfer", "work", "--to", "c", "--yes"), NotFound, "", "pod c not found in namespace NAMESPACE")
			e.expect(e.run("transfer", "work", "--to", "b", "--yes"), Done, "b (canary) acquired the lock from a", "a will stop its work and hand the lock to b")
			e.expect(e.run("step-down", "work", "--yes", "--cool-down", "1h"), Done, "work: ")
			e.shows("work", "a", "leads")
		})
	}
}

func (e *environment) expect(got result, code int, out string, errs ...string) {
	e.t.Helper()
	if got.code != code || !strings.Contains(got.out, out) {
		e.t.Errorf("exit %d, want %d and %q: %s%s", got.code, code, out, got.out, got.errs)
	}
	for _, words := range errs {
		if !strings.Contains(got.errs, words) {
			e.t.Errorf("no %q in %s", words, got.errs)
		}
	}
}

func TestOrders_Refused(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	e.istiod("free", strings.Replace(record, "istiod-stable-1", "", 1))
	e.istiod("both", record)
	e.clientGo("both", "operator-0")
	e.clientGo("operator", "operator-0_8e5b3f6c-0000-4000-8000-000000000000")
	e.clientGo("forged", "x; reboot")
	const accepted = `{"identity":"b","key":"canary","reason":"operator","requester":"ann","holder":"istiod-stable-1","transitions":3,"seconds":15,"accepted":true}`
	e.lock("open", record, "incumbent.dev/leader", "v1 istiod-stable-1 3 handover", "incumbent.dev/handover-request", accepted)
	e.lock("led", record, "incumbent.dev/leader", "v1 istiod-stable-1 3 handover")
	e.pod("over", "canary")
	e.lock("alone", strings.ReplaceAll(record, "istiod", "pilot"), "incumbent.dev/leader", "v1 pilot-stable-1 3 handover")
	e.memberOf("pilot-stable-1", "stable", "", 0, members.Election{Name: "alone", Candidate: true, Warm: true, Fit: true})
	e.memberOf("pilot-stable-2", "stable", "", 0, members.Election{Name: "alone", Candidate: true, Warm: true})
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"istiod":       {[]string{"step-down", "istio-leader", "--yes"}, Refused, "istiod-stable-1 is istiod, which does not support this command"},
		"client-go":    {[]string{"transfer", "operator", "--to", "x", "--yes"}, Refused, "is another elector such as client-go, which does not support this command: delete its pod (kubectl -n NAMESPACE delete pod operator-0), or"},
		"no pod name":  {[]string{"pause", "forged", "--yes"}, Refused, "which does not support this command: stop its process, or"},
		"timeout":      {[]string{"pause", "led", "--timeout", "0s", "--yes"}, misused, "--timeout: duration 0s: must be positive"},
		"free":         {[]string{"pause", "free", "--yes"}, Refused, "election free has no leader (state: free)"},
		"two locks":    {[]string{"pause", "both", "--yes"}, Refused, "a ConfigMap and a Lease named both"},
		"another open": {[]string{"step-down", "open", "--yes"}, Refused, "a handover to b is in progress, requested by ann"},
		"no hold":      {[]string{"resume", "led", "--yes"}, Refused, "election led has no hold to remove"},
		"no --to":      {[]string{"transfer", "led", "--yes"}, misused, `"to" not set`},
		"too long":     {[]string{"pause", "led", "--for", "1000h", "--yes"}, misused, "--for: duration 1000h0m0s: must be between 1s and 168h0m0s"},
		"hold":         {[]string{"transfer", "led", "--to", "x", "--hold", "0s"}, misused, "--hold: duration 0s: must be between"},
		"cool-down":    {[]string{"step-down", "led", "--cool-down", "-1s"}, misused, "--cool-down: duration -1s: must be between"},
		"alone":        {[]string{"step-down", "alone", "--cool-down", "1h", "--yes"}, Refused, "no other candidate of alone can lead for 10m0s (candidates: pilot-stable-2 (unfit)); to step down nevertheless, use --force"},
		"no pod":       {[]string{"transfer", "led", "--to", "x", "--yes"}, NotFound, "for a candidate outside a pod, use --revision"},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.run(c.args...)
			if got.code != c.code || !strings.Contains(got.errs, c.want) || got.out != "" {
				t.Errorf("exit %d, %q %q", got.code, got.errs, got.out)
			}
		})
	}
	e.expect(e.answer("n\n", true, "step-down", "alone", "--cool-down", "1h", "--force"), Refused, "", "no other candidate can lead for 10m0s.\nContinue?")
	e.expect(e.answer("n\n", true, "step-down", "led", "--cool-down", "2s"), Refused, "", "the other candidates are unknown: without another candidate, no candidate leads for 2s.\nContinue?")
	e.expect(e.answer("n\n", true, "transfer", "led", "--to", "x", "--revision", "canary"), Refused, "", "hand the lock to x")
}

// A holder without a marker has a hold that was written while it led.
func TestResume_WithoutMarker(t *testing.T) {
	e := newEnvironment(t)
	e.lock("work", record, "incumbent.dev/hold", `{"holder":"istiod-stable-1","transitions":3,"seconds":60,"requester":"eve","reason":"pause"}`)
	e.expect(e.run("list"), Done, "holds, pause")
	e.expect(e.run("resume", "work", "--yes"), Done, "hold removed")
	e.expect(e.run("list"), Done, "holds\n")
}

func TestPlanAndHistory(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	e.clientGo("operator", "operator-0")
	e.lock("led", strings.ReplaceAll(record, "istiod", "pilot"), "incumbent.dev/leader", "v1 pilot-stable-1 3 handover")
	e.event("led", "pilot-stable-1 became leader")
	for file, args := range map[string][]string{
		"plan.txt":     {"plan", "--default-revision", "canary"},
		"plan.yaml":    {"plan", "--default-revision", "canary", "-o", "yaml"},
		"history.txt":  {"history", "led"},
		"history.yaml": {"history", "led", "-o", "yaml"},
	} {
		got := e.run(args...)
		e.expect(got, Done, "")
		golden.File(t, "testdata/"+file, got.out)
	}
	e.expect(e.run("plan", "--kubeconfig", "absent"), misused, "", "missing --default-revision") // before it connects
	e.expect(e.run("history", "nothing"), NotFound, "", "election nothing not found")
}

func TestWatch(t *testing.T) {
	e := newEnvironment(t)
	stop := e.elect("work", "a", "stable", leaderelection.LockTypeLease, nil)
	e.shows("work", "a", "leads")
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var code int
	lines := &harness.Log{}
	watching.Go(func() { code = e.begin(ctx, lines, "watch", "work") })
	e.until(lines, "work: a leads")
	stop()
	e.until(lines, "work: a released the lock")
	e.elect("work", "b", "stable", leaderelection.LockTypeLease, nil)
	e.until(lines, "work: b (stable) acquired the lock")
	cancel()
	watching.Wait()
	if code != Done {
		t.Errorf("exit %d: %s", code, lines)
	}
}

func TestWatch_NoElections(t *testing.T) {
	e := newEnvironment(t)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	lines := &harness.Log{}
	watching.Go(func() { e.begin(ctx, lines, "watch") })
	e.until(lines, "; watching for new elections")
	e.istiod("istio-leader", record)
	e.until(lines, "istio-leader: lock created: istiod-stable-1 holds")
	e.annotate("istio-leader", recordKey, short(record))
	e.until(lines, "istio-leader: istiod-stable-1 expired (renewed ")
	cancel()
	watching.Wait()
}
