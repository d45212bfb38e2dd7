package migration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// damages change one of the two objects.
var damages = map[string]func(ctx context.Context, s *stage) error{
	"the ConfigMap is deleted": func(ctx context.Context, s *stage) error {
		return s.admin.CoreV1().ConfigMaps(s.namespace).Delete(ctx, election, metav1.DeleteOptions{})
	},
	"the Lease is deleted": func(ctx context.Context, s *stage) error {
		return s.admin.CoordinationV1().Leases(s.namespace).Delete(ctx, election, metav1.DeleteOptions{})
	},
	"the ConfigMap is emptied": func(ctx context.Context, s *stage) error {
		return s.editConfigMap(ctx, func(cm *corev1.ConfigMap) {
			delete(cm.Annotations, k8sresourcelock.LeaderElectionRecordAnnotationKey)
		})
	},
	"the ConfigMap is unreadable": func(ctx context.Context, s *stage) error {
		return s.editConfigMap(ctx, func(cm *corev1.ConfigMap) {
			cm.Annotations[k8sresourcelock.LeaderElectionRecordAnnotationKey] = "{"
		})
	},
	"the Lease is emptied": func(ctx context.Context, s *stage) error {
		leases := s.admin.CoordinationV1().Leases(s.namespace)
		lease, err := leases.Get(ctx, election, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec = coordinationv1.LeaseSpec{}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	},
}

func (s *stage) editConfigMap(ctx context.Context, edit func(*corev1.ConfigMap)) error {
	maps := s.admin.CoreV1().ConfigMaps(s.namespace)
	cm, err := maps.Get(ctx, election, metav1.GetOptions{})
	if err != nil {
		return err
	}
	edit(cm)
	_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}

// If one of the two objects is damaged, the term of the leader ends and one of the candidates leads again with both.
func TestMulti_ObjectDamaged(t *testing.T) {
	for name, harm := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			b1 := s.enter("b1", "stable", leaderelection.LockTypeMulti)
			s.leads(b1, "alone")
			b2 := s.enter("b2", "stable", leaderelection.LockTypeMulti)
			s.eventually("b2 follows", func() bool { holder, _ := b2.Leader(); return holder == "b1" })
			token := b1.Status().Token
			s.eventually(name, func() bool { return harm(t.Context(), s) == nil })
			s.eventually("b1's term is over", func() bool {
				lives := b1.Spans()
				return !lives[0].To.IsZero()
			})
			s.eventually("one of them leads with both", func() bool {
				for _, r := range []*replica{b1, b2} {
					if r.Live() && r.Status().Token != token {
						both := s.try()
						return both == r.name+"/"+r.name
					}
				}
				return false
			})
			lives.Apart(s.t, s.all...)
		})
	}
}

// try returns the holders, or an error if an object does not exist.
func (s *stage) try() string {
	cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s/%s", k8sresourcelock.ConfigMapSnapshot(cm).Record.HolderIdentity,
		k8sresourcelock.LeaseSnapshot(lease).Record.HolderIdentity)
}

// Between the two writes of an acquisition no candidate leads. The writer completes it.
func TestMulti_AcquisitionCompleted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b1 := s.prepare("b1", "stable", leaderelection.LockTypeMulti, "pilot", rights())
	release := b1.hold("leases")
	b1.start(t)
	s.eventually("only the ConfigMap names b1", func() bool { return strings.HasPrefix(s.half(), "b1/") })
	if b1.Live() || b1.IsLeader() {
		t.Error("b1 leads with one of two objects")
	}
	if got := s.half(); got != "b1/" {
		t.Errorf("holders %q", got)
	}
	release()
	s.leads(b1, "its second write was stored")
	if got := s.holders(); got != "b1/b1" {
		t.Errorf("holders %q", got)
	}
}

// half returns the holders. The Lease may not exist yet.
func (s *stage) half() string {
	holders := s.try()
	if !strings.Contains(holders, "leases") {
		return holders
	}
	return s.configMap().Record.HolderIdentity + "/"
}

// Between the two writes of a handover no candidate leads. The writer completes it.
func TestMulti_HandoverCompleted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b1 := s.prepare("b1", "stable", leaderelection.LockTypeMulti, "pilot", rights())
	held := make(chan func(), 1)
	b1.onStop = func() { held <- b1.hold("leases") } // its acceptance is acknowledged by then
	b1.start(t)
	s.leads(b1, "alone")
	b2 := s.enter("b2", "canary", leaderelection.LockTypeMulti)
	s.eventually("b2 follows", func() bool { holder, _ := b2.Leader(); return holder == "b1" })
	s.defaultRevision.Set("canary")
	s.eventually("the handover is half done", func() bool { return s.try() == "b2/b1" })
	if b1.Live() || b2.Live() || b2.IsLeader() {
		t.Errorf("b1 works: %v, b2 works: %v", b1.Live(), b2.Live())
	}
	(<-held)()
	s.leads(b2, "both were handed over")
	s.eventually("both name b2", func() bool { return s.try() == "b2/b2" })
	lives.Apart(s.t, s.all...)
}

// The election moves back: Lease, both, ConfigMap.
func TestSteps_Back(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	l := s.enter("l", "stable", leaderelection.LockTypeLease)
	s.leads(l, "alone, with the Lease")
	b1 := s.enter("b1", "stable", leaderelection.LockTypeMulti)
	b2 := s.enter("b2", "canary", leaderelection.LockTypeMulti)
	s.must(l.Quit())
	s.eventually("b1 or b2 leads", func() bool { return b1.Live() || b2.Live() })
	s.leads(b1, "l was replaced; b1 is of the default revision")
	s.defaultRevision.Set("canary")
	s.leads(b2, "handover within step two")
	c1 := s.enter("c1", "stable", leaderelection.LockTypeConfigMap)
	s.defaultRevision.Set("stable")
	s.eventually("b1 or c1 leads", func() bool { return b1.Live() || c1.Live() })
	s.must(b1.Quit())
	s.leads(c1, "b1 was replaced")
	c1.cut(true)
	s.leads(b2, "c1 is lost: its lease has expired")
	c1.cut(false)
	s.leads(c1, "it is back and requests the lock")
	s.must(b2.Quit())
	if got := s.configMap(); got.Record.HolderIdentity != "c1" || !c1.Live() {
		t.Errorf("the ConfigMap in the end: %+v, c1 works: %v", got.Record, c1.Live())
	}
	lives.Apart(s.t, s.all...)
}
