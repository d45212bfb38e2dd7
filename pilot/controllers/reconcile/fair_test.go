package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
		f := newFair(namespaceOf, workers/2)
		var got []string
		waiting := 0
		pop := func() {
			got = append(got, f.Pop())
			f.done(got[len(got)-1])
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
		if strings.Join(got, " ") != test.want || len(f.keys) > 0 || len(f.active) > 0 || f.turns.Len() > 0 {
			t.Errorf("%s: order %q, want %q; %d namespaces left", test.push, got, test.want, len(f.keys))
		}
	}
}

// A namespace has no turn while two of its keys are reconciled. "-" takes a key, and "-key" ends it.
func TestFair_Bound(t *testing.T) {
	for _, test := range []struct{ steps, want string }{
		{"a/1 a/2 a/3 a/4 - - 0 b/1 1 - 0", "a/1 a/2 b/1"},
		{"a/1 a/2 a/3 a/4 - - -a/1 2 - 0 -a/2 -a/3 1 - 0 -a/4", "a/1 a/2 a/3 a/4"},
		{"a/1 a/2 - - a/3 a/4 0 b/1 b/2 2 -a/2 4 - - - 0", "a/1 a/2 b/1 a/3 b/2"},
		{"a/1 a/2 - - -a/1 -a/2 a/3 a/4 2 - - 0", "a/1 a/2 a/3 a/4"},
		{"a/1 - a/2 1 a/3 2 - 0 -a/1 1 - 0", "a/1 a/2 a/3"},
	} {
		f := newFair(namespaceOf, 2)
		var got []string
		for _, step := range strings.Fields(test.steps) {
			ended, ends := strings.CutPrefix(step, "-")
			switch n, err := strconv.Atoi(step); {
			case step == "-":
				got = append(got, f.Pop())
			case ends:
				f.done(ended)
			case err != nil:
				f.Push(step)
			case f.Len() != n:
				t.Errorf("%s: %d keys are ready after %q, want %d", test.steps, f.Len(), got, n)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: order %q, want %q", test.steps, got, test.want)
		}
	}
}

// Keys that do not end occupy at most half of the workers. Keys that end are followed by the next keys of the namespace.
func TestController_NamespaceHasHalfOfWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, others atomic.Int32
		c, _ := newController(t, nil, newStore(), nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.Namespace = namespaceOf
			config.Reconcile = func(ctx context.Context, key string) error {
				if namespaceOf(key) != "a" {
					others.Add(1)
					return nil
				}
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return nil
			}
		})
		stop := start(t, c)
		synctest.Wait()
		for i := range 100 {
			c.Enqueue(fmt.Sprintf("a/%d", i))
		}
		synctest.Wait()
		for i := range 10 {
			c.Enqueue(fmt.Sprintf("b/%d", i))
		}
		synctest.Wait()
		if running.Load() != workers/2 || others.Load() != 10 {
			t.Errorf("%d keys of a run, %d keys of b have ended", running.Load(), others.Load())
		}
		time.Sleep(10 * time.Minute)
		if running.Load() != workers/2 || most.Load() != workers/2 {
			t.Errorf("%d keys run, at most %d", running.Load(), most.Load())
		}
		stop()
	})
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
