package elections

import (
	"context"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/internal/testutil/history"
)

// The leader's process is stopped until its lease has run out and another leads, and then goes on
// where it was: writing. Its functions are told, and what the API server has stored shows no
// write of the old term after one of the next.
func leaderIsSuspended(tr *troupe) { suspend(tr, gated, 3, "") }

// A process that writes past the gate is convicted.
func ungatedLeaderIsSuspended(tr *troupe) { suspend(tr, ungated, 1, "two at once") }

func suspend(tr *troupe, how string, rounds int, says string) {
	leads, other := tr.enter("a", "stable", corev1.RestartPolicyNever, env(writesVariable, how)), (*actor)(nil)
	eventually(tr, "a leads", leads.live)
	other = tr.enter("b", "stable", corev1.RestartPolicyNever, env(writesVariable, how))
	var late []time.Duration
	for range rounds {
		tr.wrote(leads)
		before := len(leads.spans())
		leads.signal(syscall.SIGSTOP)
		eventually(tr, other.name+" leads", other.live)
		tr.wrote(other)
		resumed := time.Now()
		leads.signal(syscall.SIGCONT)
		eventually(tr, leads.name+"'s function has returned", func() bool { return !leads.live() })
		ended := leads.spans()[before-1]
		if ended.Told.Before(resumed) {
			tr.Errorf("%s was told at %v, before its process went on at %v", leads.name, ended.Told, resumed)
		}
		late = append(late, ended.Told.Sub(resumed))
		leads, other = other, leads
	}
	writes := tr.writes()
	wrong := strings.Join(history.Judge(writes, false), "\n")
	if says == "" && wrong != "" || !strings.Contains(wrong, says) {
		tr.Errorf("the history of %d writes says %q, want %q", len(writes), wrong, says)
	}
	if n := history.Runs(writes); n != rounds+1 {
		tr.Errorf("%d terms have written, want %d", n, rounds+1)
	}
	tr.Logf("figure: %s, from SIGCONT until the functions were told: %v; %d writes", how, late, len(writes))
}

// writes are what the processes' functions have stored.
func (tr *troupe) writes() (writes []history.Write) {
	tr.Helper()
	list, err := tr.stage.cluster.Client(tr).Kube().CoreV1().ConfigMaps(tr.stage.namespace).List(tr.Context(), metav1.ListOptions{LabelSelector: history.TokenLabel})
	if err != nil {
		tr.Fatal(err)
	}
	for i := range list.Items {
		w, err := history.Of(&list.Items[i])
		if err != nil {
			tr.Fatal(err)
		}
		writes = append(writes, w)
	}
	return writes
}

// wrote waits until the actor has written since now.
func (tr *troupe) wrote(a *actor) {
	tr.Helper()
	count := func() (n int) {
		for _, w := range tr.writes() {
			if w.By == a.name {
				n++
			}
		}
		return n
	}
	before := count()
	err := wait.PollUntilContextTimeout(tr.Context(), 200*time.Millisecond, soon, true, func(context.Context) (bool, error) { return count() > before+3, nil })
	if err != nil {
		tr.Fatalf("%s has not written more than %d times: %v", a.name, before+3, err)
	}
}
