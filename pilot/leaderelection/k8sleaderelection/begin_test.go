package k8sleaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// Begin does what Campaign does, and tells the end once.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := prepare(t, locktest.NewStore(locktest.Lease), "a")
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 8)
		a.Begin(ctx, func(err error) { ends <- err })
		synctest.Wait()
		if !a.IsLeader() || len(ends) != 0 {
			t.Fatalf("leader %v, ended %d times", a.IsLeader(), len(ends))
		}
		a.Begin(ctx, func(err error) { ends <- err })
		if err := <-ends; !errors.Is(err, le.ErrRunning) {
			t.Errorf("a second one beside it: %v", err)
		}
		cancel()
		synctest.Wait()
		if err := <-ends; err != nil || a.IsLeader() || len(ends) != 0 {
			t.Errorf("ended with %v, leader %v, ended %d times more", err, a.IsLeader(), len(ends))
		}
		again, stop := context.WithCancel(t.Context())
		a.Begin(again, func(err error) { ends <- err })
		synctest.Wait()
		if !a.IsLeader() {
			t.Error("it does not lead again")
		}
		stop()
		<-ends
	})
}

// Electors that share a Dispatcher all lead, and renew on time, though it lets one call
// pass at once. Calls of one that hang are given up at their deadlines, and no later.
func TestElectorsShareADispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := le.NewDispatcher(1)
		share := func(c *le.LeaderElectionConfig) { c.Dispatcher = d }
		var all []*candidate
		for i := range 5 {
			all = append(all, enter(t, locktest.NewStore(locktest.Lease), fmt.Sprint("p", i), share))
		}
		leading := func() (n int) {
			synctest.Wait()
			for _, c := range all {
				if c.IsLeader() {
					n++
				}
			}
			return n
		}
		<-time.After(5 * lease)
		if n := leading(); n != 5 {
			t.Fatalf("%d lead", n)
		}
		all[0].cut(true)
		<-time.After(lease)
		if all[0].IsLeader() {
			t.Error("one that is cut off leads on")
		}
		all[0].cut(false)
		<-time.After(2 * lease)
		if n := leading(); n != 5 {
			t.Errorf("%d lead afterwards", n)
		}
	})
}
