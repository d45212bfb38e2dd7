package wiring

import (
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestWrites_RejectedAfterLoss(t *testing.T) {
	for name, c := range map[string]struct {
		lock leaderelection.LockType
		lose func(*candidate)
	}{
		"overwritten":            {leaderelection.LockTypeLease, overwrite},
		"overwritten, MultiLock": {leaderelection.LockTypeMulti, overwrite},
		"lock deleted":           {leaderelection.LockTypeLease, deleteLock},
		"ConfigMap deleted":      {leaderelection.LockTypeConfigMap, deleteLock},
		"record corrupted":       {leaderelection.LockTypeConfigMap, corrupt},
		"writes are refused":     {leaderelection.LockTypeLease, refuseWrites},
		"silence": {leaderelection.LockTypeLease, func(c *candidate) {
			c.relay.Present(relay.Silent)
			c.relay.Coming(relay.Silent)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.lock)
			s.prepare()
			a := s.enter("pilot-0", "stable", nil)
			a.leads()
			c.lose(a)
			a.isTold()
			a.isShut() // while the function is still there
			a.mayReturn()
		})
	}
}

func TestWrites_RejectedAfterRelease(t *testing.T) {
	for name, leave := range map[string]func(*stage, *defaults.Watcher, *candidate){
		"stop": func(s *stage, _ *defaults.Watcher, a *candidate) {
			var quit sync.WaitGroup
			quit.Go(a.quit)
			s.t.Cleanup(quit.Wait)
		},
		"handover": func(s *stage, w *defaults.Watcher, _ *candidate) {
			s.enter("pilot-1", "canary", w)
			w.Set("canary")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, leaderelection.LockTypeLease)
			s.prepare()
			w := defaults.New("stable")
			a := s.enter("pilot-0", "stable", w)
			a.leads()
			leave(s, w, a)
			a.isTold()
			if err := a.write(t.Context()); err != nil {
				t.Errorf("a write while it drains: %v", err)
			}
			if holder := s.holder(); holder != "pilot-0" {
				t.Errorf("the lock names %q while it drains", holder)
			}
			a.mayReturn()
			eventually(t, "the lock is handed over", func() bool { return s.holder() != "pilot-0" })
			a.isShut()
		})
	}
}

func (s *stage) holder() string {
	s.t.Helper()
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

// patch changes each object that is part of the lock, as an administrator.
func (s *stage) patch(lease, configMap string) {
	s.t.Helper()
	if s.lock != leaderelection.LockTypeConfigMap && lease != "" {
		_, err := s.admin.CoordinationV1().Leases(s.namespace).Patch(s.t.Context(), election, types.MergePatchType, []byte(lease), metav1.PatchOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if s.lock != leaderelection.LockTypeLease && configMap != "" {
		_, err := s.admin.CoreV1().ConfigMaps(s.namespace).Patch(s.t.Context(), election, types.MergePatchType, []byte(configMap), metav1.PatchOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func overwrite(c *candidate) { c.stage.patch(`{"spec":{"holderIdentity":"other"}}`, "") }

func corrupt(c *candidate) {
	c.stage.patch("", `{"metadata":{"annotations":{"`+k8sresourcelock.LeaderElectionRecordAnnotationKey+`":"{"}}}`)
}

func deleteLock(c *candidate) {
	s := c.stage
	var err error
	if s.lock == leaderelection.LockTypeConfigMap {
		err = s.admin.CoreV1().ConfigMaps(s.namespace).Delete(s.t.Context(), election, metav1.DeleteOptions{})
	} else {
		err = s.admin.CoordinationV1().Leases(s.namespace).Delete(s.t.Context(), election, metav1.DeleteOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// refuseWrites takes the right to update away; the work's writes would be refused with it,
// if they got out.
func refuseWrites(c *candidate) {
	s := c.stage
	err := s.admin.RbacV1().RoleBindings(s.namespace).DeleteCollection(s.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}
