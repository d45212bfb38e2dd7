package server

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
)

const (
	// quiet is the time without writes after which the first reconciliation is complete. A status can depend on another
	// controller's objects.
	quiet = 3 * time.Second
	every = 200 * time.Millisecond
	// patience bounds every wait.
	patience = 30 * time.Minute
)

// BenchmarkServer measures pilot with the numbers of objects in BENCH_NAMESPACES, BENCH_INGRESSES and BENCH_GATEWAYS.
// It runs once for each limit of requests per second in BENCH_QPS (-1 means no limit). Results:
//
//   - <controller>-s: time from the election to the response of the last write of the first reconciliation;
//   - <controller>-first-write-ms: after the leader is killed, time from the election of a warm follower to the arrival
//     of its first write, for an object that was created while there was no leader;
//   - heap-MiB: live heap of a server without objects, of a leader and of a follower.
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
	b.ReportMetric(empty.heap(), "empty-heap-MiB")
	empty.Signal(b, syscall.SIGTERM)
	empty.Exit(b)
	w.populate(n)

	first := w.pilot("first", qps)
	w.reconciled(first, n)
	for row, work := range w.audit.of(first.Name, w.home) {
		b.ReportMetric(work.last.Sub(work.elected).Seconds(), row+"-s")
	}
	second := w.pilot("second", qps)
	w.follows(second, first)
	b.ReportMetric(first.heap(), "leader-heap-MiB")
	b.ReportMetric(second.heap(), "follower-heap-MiB")

	first.Kill()
	w.fresh("fresh")
	w.each("second has written", second, func(_ string, work work) bool { return work.objects > 0 })
	for row, work := range w.audit.of(second.Name, w.home) {
		b.ReportMetric(float64(work.first.Sub(work.elected).Microseconds())/1000, row+"-first-write-ms")
	}
}

// leads waits until a server holds all locks.
func (w *world) leads(p *pilot) {
	w.Helper()
	w.each(p.Name+" leads", p, func(_ string, work work) bool { return !work.elected.IsZero() })
}

// reconciled waits until each object was written and no further writes occur.
func (w *world) reconciled(p *pilot, n size) {
	w.Helper()
	// An earlier server has written to the earlier namespaces.
	wanted := map[string]int{namespaceRow: n.namespaces, ingressRow: n.ingresses, statusRow: n.gateways, deploymentRow: 4 * n.gateways}
	w.each("all is reconciled", p, func(row string, work work) bool {
		return work.objects >= wanted[row] && time.Since(work.last) > quiet
	})
}

// each waits until a condition holds for the work of each controller of a server.
func (w *world) each(what string, p *pilot, holds func(row string, work work) bool) {
	w.Helper()
	w.await(what, p, func() bool {
		all := w.audit.of(p.Name, w.home)
		for row := range locks {
			if !holds(row, all[row]) {
				return false
			}
		}
		return true
	})
}

// follows waits until a server is warm and follows the leader.
func (w *world) follows(p, leader *pilot) {
	w.Helper()
	w.await(p.Name+" follows", p, func() bool {
		var elections []inspect.Election
		if page := p.page("/debug/elections"); page == "" || json.Unmarshal([]byte(page), &elections) != nil {
			return false
		}
		for _, e := range elections {
			if e.Holder != leader.Name {
				return false
			}
		}
		return len(elections) == len(locks)
	})
}

// await polls until a condition holds.
func (w *world) await(what string, p *pilot, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-p.Ended():
			w.Fatalf("%s: %s ended", what, p.Name)
		case <-late:
			w.Fatalf("not within %v: %s", patience, what)
		}
	}
}
