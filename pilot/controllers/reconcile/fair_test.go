package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func namespaceOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func TestFair(t *testing.T) {
	for _, test := range []struct{ push, want string }{
		{"", ""},
		{"a/1 a/2 a/3", "a/1 a/2 a/3"},
		{"a/1 a/2 a/3 b/1", "a/1 b/1 a/2 a/3"},
		{"a/1 a/2 b/1 c/1 b/2 a/3", "a/1 b/1 c/1 a/2 b/2 a/3"},
		// A namespace without waiting keys gets its turn after one key of each other namespace.
		{"a/1 a/2 a/3 b/1 b/2 b/3 - - - c/1", "a/1 b/1 a/2 b/2 a/3 c/1 b/3"},
		// A namespace whose turn was last does not lose its turn if it adds its next key late.
		{"a/1 - a/2 b/1 a/3", "a/1 a/2 b/1 a/3"},
	} {
		f := newFair(namespaceOf)
		var got []string
		waiting := 0
		pop := func() {
			got = append(got, f.Pop())
			waiting--
		}
		for _, key := range strings.Fields(test.push) {
			if key == "-" {
				pop()
				continue
			}
			f.Push(key)
			f.Touch(key)
			waiting++
			if f.Len() != waiting {
				t.Errorf("%s: Len returned %d, want %d", test.push, f.Len(), waiting)
			}
		}
		for f.Len() > 0 {
			pop()
		}
		if strings.Join(got, " ") != test.want || len(f.keys) > 0 || f.turns.Len() > 0 {
			t.Errorf("%s: order %q, want %q; %d namespaces left", test.push, got, test.want, len(f.keys))
		}
	}
}

// A namespace with 1,000 waiting or failing keys delays a key of another namespace by one turn only.
func TestController_NamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		c, _ := newController(t, nil, newStore(), nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.Namespace = namespaceOf
			config.Reconcile = func(_ context.Context, key string) error {
				mu.Lock()
				order = append(order, key)
				mu.Unlock()
				time.Sleep(time.Second)
				return fmt.Errorf("fails: %s", namespaceOf(key))
			}
		})
		stop := start(t, c)
		synctest.Wait()
		for i := range 1000 {
			c.Enqueue(fmt.Sprintf("a/%d", i))
		}
		time.Sleep(time.Minute + time.Second/2)
		mu.Lock()
		before := len(order)
		mu.Unlock()
		c.Enqueue("b/1", "c/1", "b/2")
		time.Sleep(3 * time.Second)
		stop()
		for _, key := range []string{"b/1", "c/1", "b/2"} {
			if at := slices.Index(order, key); at < before || at >= before+2*workers {
				t.Errorf("%s was reconciled after %d keys, which is not within two turns of the %d keys before", key, at, before)
			}
		}
	})
}
