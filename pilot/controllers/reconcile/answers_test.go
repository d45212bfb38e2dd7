package reconcile

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var overdue []string
		u := newAnswers[string, *corev1.ConfigMap](func(key string) { overdue = append(overdue, key) })
		name := func(n string) types.NamespacedName { return types.NamespacedName{Name: n} }
		versioned := func(version string) *corev1.ConfigMap {
			m := configMap("b", "")
			m.ResourceVersion = version
			return m
		}
		type ours = answer[string, *corev1.ConfigMap]
		u.add(name("a"), &ours{key: "a", in: "1", stale: "5"})
		u.add(name("b"), &ours{key: "b", in: "2", object: versioned("7")})
		u.add(name("b"), &ours{key: "b", in: "2", object: versioned("8")})
		if u.seen(name("b"), "7") != nil || u.seen(name("a"), "5") != nil || u.seen(name("c"), "9") != nil {
			t.Error("an earlier version counts as seen")
		}
		if u.of(name("a"), "2") != nil || u.of(name("a"), "1") == nil || u.of(name("b"), "2").object.ResourceVersion != "8" {
			t.Error("of returns the answer for another namespace UID, or none")
		}
		if a := u.seen(name("b"), "8"); a == nil || a.key != "b" || u.of(name("b"), "2") != nil || u.seen(name("b"), "8") != nil {
			t.Error("an answer remains after it was seen")
		}
		old := u.of(name("a"), "1")
		u.add(name("a"), &ours{key: "a", in: "1", stale: "6"})
		if u.drop(name("a"), old) || u.of(name("a"), "1") == nil {
			t.Error("dropping an earlier answer removed a later one")
		}
		u.clear()
		u.add(name("d"), &ours{key: "key of d"})
		time.Sleep(2 * unseenLimit)
		synctest.Wait()
		if !slices.Equal(overdue, []string{"key of d"}) || len(u.unseen) != 0 {
			t.Errorf("overdue: %q, %d answers left", overdue, len(u.unseen))
		}
	})
}
