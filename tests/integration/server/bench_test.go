package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/bootstrap"
)

const (
	// quiet is the time without writes after which the first reconciliation is complete. A status can depend on another
	// controller's objects.
	quiet = 3 * time.Second
	every = 200 * time.Millisecond
)

// BenchmarkServer measures pilot with the numbers of objects in BENCH_NAMESPACES, BENCH_INGRESSES and BENCH_GATEWAYS.
// It runs once for each limit of requests per second in BENCH_QPS (-1 means no limit). Results:
//
//   - <controller>-s: time from the election to the response of the last write of the first reconciliation;
//   - <controller>-writes, -objects and -refused: writes in that time, different objects, and rejected writes, for
//     example conflicts with another controller;
//   - <controller>-first-write-ms: after the leader is killed, time from the election of a warm follower to the arrival
//     of its first write, for an object that was created while there was no leader;
//   - needless-writes: writes of that follower to objects that were up to date;
//   - heap-MiB and resident-MiB: memory of a server without objects, of a leader and of a follower.
func BenchmarkServer(b *testing.B) {
	program, n := build(b), sizeOf(b)
	rates := os.Getenv("BENCH_QPS")
	if rates == "" {
		rates = "-1"
	}
	for _, text := range strings.Fields(rates) {
		qps, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.Fatalf("BENCH_QPS: %q is no number", text)
		}
		name := fmt.Sprintf("qps=%s/namespaces=%d/ingresses=%d/gateways=%d", text, n.namespaces, n.ingresses, n.gateways)
		b.Run(name, func(b *testing.B) {
			for range b.N {
				measure(b, program, n, qps)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func measure(b *testing.B, program string, n size, qps float64) {
	w := newWorld(b, program)
	empty := w.pilot("empty", qps)
	w.leads(empty)
	base := empty.memory()
	empty.Signal(b, syscall.SIGTERM)
	empty.Exit(b)
	w.populate(n)

	first := w.pilot("first", qps)
	w.leads(first)
	began := w.audit.of(first.Name, w.home)
	w.reconciled(first, n)
	for row, work := range w.audit.of(first.Name, w.home) {
		b.ReportMetric(work.last.Sub(began[row].elected).Seconds(), row+"-s")
		b.ReportMetric(float64(work.writes), row+"-writes")
		b.ReportMetric(float64(work.objects), row+"-objects")
		b.ReportMetric(float64(work.refused), row+"-refused")
	}
	second := w.pilot("second", qps)
	w.follows(second, first)
	b.ReportMetric(base.heap, "empty-heap-MiB")
	b.ReportMetric(base.resident, "empty-resident-MiB")
	for name, p := range map[string]*pilot{"leader": first, "follower": second} {
		m := p.memory()
		b.ReportMetric(m.heap, name+"-heap-MiB")
		b.ReportMetric(m.resident, name+"-resident-MiB")
	}
	w.killLeader(b, first, second)
}

// killLeader kills the leader, creates objects while there is no leader, and reports the writes of the follower.
func (w *world) killLeader(b *testing.B, leader, follower *pilot) {
	w.Helper()
	leader.Kill()
	w.fresh(0)
	w.leads(follower)
	w.settled(follower, 0)
	// These objects are reconciled after all existing objects.
	w.fresh(1)
	w.settled(follower, 1)
	needless := 0
	for _, e := range w.audit.read() {
		if row, lock := rowOf(e, w.home); e.Pod() == follower.Name && row != "" && !lock && accepted(e) && !strings.HasPrefix(e.ObjectRef.Namespace, freshPrefix) {
			needless++
			w.Logf("needless: %s %s %s/%s", e.Verb, e.Resource(), e.ObjectRef.Namespace, e.ObjectRef.Name)
		}
	}
	b.ReportMetric(float64(needless), "needless-writes")
	for row, work := range w.audit.of(follower.Name, w.home) {
		b.ReportMetric(float64(work.first.Sub(work.elected).Microseconds())/1000, row+"-first-write-ms")
	}
}

const freshPrefix = "fresh-"

// fresh creates one object for each controller in a new namespace.
func (w *world) fresh(i int) {
	w.Helper()
	name := fmt.Sprint(freshPrefix, i)
	w.must(w.namespace(name))
	w.must(w.ingress(name, name))
	w.must(w.gateway(name, name))
}

// settled waits until all controllers have reconciled fresh objects.
func (w *world) settled(p *pilot, i int) {
	w.Helper()
	name := fmt.Sprint(freshPrefix, i)
	w.await(fmt.Sprintf("%s has served %s", p.Name, name), p, func() bool {
		served := map[string]bool{}
		for _, e := range w.audit.read() {
			if row, lock := rowOf(e, w.home); e.Pod() == p.Name && accepted(e) && !lock && e.ObjectRef.Namespace == name {
				served[row] = served[row] || row != deploymentRow || e.ObjectRef.Resource == "deployments" // the last object
			}
		}
		return !slices.ContainsFunc(rows(), func(row string) bool { return !served[row] })
	})
}

// rows returns the controllers of the server.
func rows() (all []string) {
	shared, perRevision := bootstrap.Elections(bootstrap.Config{Revision: revision})
	for row, lock := range locks {
		if slices.Contains(shared, lock) || slices.Contains(perRevision, lock) {
			all = append(all, row)
		}
	}
	return all
}

// leads waits until a server holds all locks.
func (w *world) leads(p *pilot) {
	w.Helper()
	w.await(p.Name+" leads", p, func() bool {
		elected := 0
		for _, work := range w.audit.of(p.Name, w.home) {
			if !work.elected.IsZero() {
				elected++
			}
		}
		return elected == len(rows())
	})
}

// follows waits until a server is warm and follows the leader.
func (w *world) follows(p, leader *pilot) {
	w.Helper()
	w.await(p.Name+" follows", p, func() bool {
		var elections []struct{ LeaderIdentity string }
		if page := p.page("/debug/elections"); page == "" || json.Unmarshal([]byte(page), &elections) != nil {
			return false
		}
		for _, e := range elections {
			if e.LeaderIdentity != leader.Name {
				return false
			}
		}
		return len(elections) == len(rows())
	})
}

// reconciled waits until each object was written and no further writes occur.
func (w *world) reconciled(p *pilot, n size) {
	w.Helper()
	// An earlier server has written to the earlier namespaces.
	wanted := map[string]int{namespaceRow: n.namespaces, ingressRow: n.ingresses, statusRow: n.gateways, deploymentRow: 4 * n.gateways}
	writes, since := -1, time.Now()
	w.await("all is reconciled", p, func() bool {
		now, missing := 0, false
		done := w.audit.of(p.Name, w.home)
		for _, row := range rows() {
			now += done[row].writes
			missing = missing || done[row].objects < wanted[row]
		}
		if now != writes {
			writes, since = now, time.Now()
		}
		return !missing && time.Since(since) > quiet
	})
}

// await polls until a condition holds. It fails if the audit log shows no progress.
func (w *world) await(what string, p *pilot, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	entries, since := 0, time.Now()
	for !holds() {
		select {
		case <-tick.C:
		case <-p.Ended():
			w.Fatalf("%s: %s ended", what, p.Name)
		case <-w.Context().Done():
			w.Fatal(context.Cause(w.Context()))
		}
		renewals := 0
		for _, e := range w.audit.read() {
			if e.ObjectRef.Resource == "leases" && e.Verb == "update" {
				renewals++
			}
		}
		if n := len(w.audit.all) - renewals; n != entries {
			entries, since = n, time.Now()
		}
		if time.Since(since) > patience {
			w.Fatalf("no writes for %v: %s", patience, what)
		}
	}
}
