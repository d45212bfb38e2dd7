package bootstrap

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// fenced is a table whose controller writes objects that no other test does.
func (c *controller) fenced(e *environment) []election {
	rows := c.rows()
	rows[0].writes = []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{e.guardedName()}, Namespaces: []string{e.home}}}
	return rows
}

func (e *environment) guardedName() string { return guarded + "-" + e.home }

// putFence puts up a fence for such a table, and returns what takes it down.
func (e *environment) putFence(t *testing.T, rows []election) (remove func()) {
	t.Helper()
	declaration := fence.Declaration{
		Election: electionID, Namespace: e.home, Lock: fence.ConfigMap, ServiceAccounts: []string{e.home + "/pilot"}, Guards: rows[0].writes,
	}
	set, err := fence.Render(e.home, declaration)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(t.Context(), e.admin.Kube(), set); err != nil {
		t.Fatal(err)
	}
	remove = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if _, err := install.Remove(ctx, e.admin.Kube(), set.Name); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	return remove
}

const (
	standsSample = "incumbent_fence_in_effect{name=%q}"
	checksSample = "incumbent_fence_checks_total{answer=%q,name=%q,role=%q}"
)

func (r *replica) stands(t *testing.T) string {
	return r.metric(t, fmt.Sprintf(standsSample, electionID))
}

func (r *replica) checks(t *testing.T, answer, role string) string {
	return r.metric(t, fmt.Sprintf(checksSample, answer, electionID, role))
}

func fenceHasItsEffect(t *testing.T, e *environment) {
	c := newController()
	rows := c.fenced(e)
	e.putFence(t, rows)
	without := start(t, e.config(t, "without"), rows)
	without.leads(t)
	if state := without.election(t); state.Fence != nil || without.stands(t) != "" {
		t.Errorf("without Fence, it says %+v", state.Fence)
	}
	config := e.config(t, "with")
	config.Fence = true
	with := start(t, config, newController().fenced(e))
	await(t, "it was tried", func() bool { s := with.election(t).Fence; return s != nil && s.Answer == "refused" })
}

// fenceFallsAndIsNoticed: while nobody's term begins or ends, and by writes that are dry.
func fenceFallsAndIsNoticed(t *testing.T, e *environment) {
	leading, following := newController(), newController()
	remove := e.putFence(t, leading.fenced(e))
	config := e.config(t, "a")
	// It tests so seldom that the begin of its term has to wake it.
	config.Fence = true
	config.fenceEvery = time.Hour
	a := start(t, config, leading.fenced(e))
	await(t, "the leader's write is admitted", func() bool { return a.stands(t) == "1" && a.checks(t, "admitted", "leading") != "" })
	var sent requests
	config = e.config(t, "b")
	sent.through(config.RESTConfig)
	// It looks so seldom that what it notices is what it watches.
	config.Fence, config.fenceEvery = true, time.Hour
	b := start(t, config, following.fenced(e))
	await(t, "the follower's write is refused", func() bool {
		now := b.election(t)
		return b.stands(t) == "1" && b.checks(t, "refused", "following") != "" && now.Fence != nil && now.Fence.InEffect && !now.Fence.Leading &&
			strings.Contains(now.Fence.Detail, "b is not the leader")
	})
	token := a.election(t).Token
	guard := fmt.Sprintf("incumbent_fence_guard_in_effect{guard=%q,name=%q}", "configmaps "+e.guardedName()+" "+e.home, electionID)
	if got := b.metric(t, guard); got != "1" {
		t.Errorf("%s is %q", guard, got)
	}

	remove()
	await(t, "it is noticed that it fell", func() bool {
		now := b.election(t)
		return b.stands(t) == "0" && now.Fence != nil && !now.Fence.InEffect && now.Fence.Answer == "admitted"
	})
	await(t, "the Event of it", func() bool {
		events, err := e.admin.Kube().CoreV1().Events(e.home).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=WriteFence,type=Warning"})
		return err == nil && len(events.Items) > 0
	})
	if now := b.election(t).Fence; b.metric(t, guard) != "0" || len(now.Guards) != 1 || now.Guards[0].InEffect {
		t.Errorf("%s is %q, and the page has %+v", guard, b.metric(t, guard), now.Guards)
	}
	if a.election(t).Token != token {
		t.Error("a term has ended meanwhile: it proves nothing")
	}
	e.putFence(t, leading.fenced(e))
	await(t, "it is noticed that it stands again", func() bool { return b.stands(t) == "1" })
	if n := b.lines.Count("fence is not in effect"); n != 1 {
		t.Errorf("that it fell was said %d times", n)
	}
	wet := sent.that(func(r *http.Request) bool {
		return r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/configmaps") && r.URL.Query().Get("dryRun") != metav1.DryRunAll
	})
	if len(wet) > 0 {
		t.Errorf("a follower sent %s %s", wet[0].Method, wet[0].URL)
	}
	if _, err := e.admin.Kube().CoreV1().ConfigMaps(e.home).Get(t.Context(), e.guardedName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was tried was written: %v", err)
	}

	t.Log("the right to write goes: nothing is known of the fence then")
	if err := b.end(); err != nil {
		t.Error(err)
	}
	config = e.config(t, "c")
	config.Fence, config.fenceEvery = true, 100*time.Millisecond
	b = start(t, config, newController().fenced(e))
	await(t, "the follower's write is refused", func() bool { return b.stands(t) == "1" })
	e.forbid(t, "configmaps", "create")
	await(t, "it is not clear", func() bool {
		now := b.election(t).Fence
		return b.stands(t) == "" && now != nil && now.Answer == "unclear" && b.checks(t, "unclear", "following") != ""
	})
	before := b.checks(t, "unclear", "following")
	await(t, "it was tried again", func() bool { return b.checks(t, "unclear", "following") != before })
	if n := b.lines.Count("cannot determine"); n != 1 {
		t.Errorf("that it is not clear was said %d times", n)
	}
}

// forbid takes a right away from the servers of the namespace.
func (e *environment) forbid(t *testing.T, resource, verb string) {
	t.Helper()
	without := func(rules []rbacv1.PolicyRule) (left []rbacv1.PolicyRule) {
		for _, rule := range rules {
			if strings.Join(rule.Resources, ",") == resource && strings.Contains(strings.Join(rule.Verbs, ","), verb) {
				rule.Verbs = strings.Split(strings.ReplaceAll(strings.Join(rule.Verbs, ","), verb, "get"), ",")
			}
			left = append(left, rule)
		}
		return left
	}
	role, err := e.admin.Kube().RbacV1().Roles(e.home).Get(t.Context(), "pilot", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = without(role.Rules)
	if _, err := e.admin.Kube().RbacV1().Roles(e.home).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	everywhere, err := e.admin.Kube().RbacV1().ClusterRoles().Get(t.Context(), e.home+":pilot", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	everywhere.Rules = without(everywhere.Rules)
	if _, err := e.admin.Kube().RbacV1().ClusterRoles().Update(t.Context(), everywhere, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
