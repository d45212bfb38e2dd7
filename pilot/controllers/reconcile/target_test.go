package reconcile

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/pkg/kube"
)

// A refusal may come after the cache has shown what it tells of: no event comes then to look at the key for.
func TestARefusalThatTheCacheHasShownTheReasonOf(t *testing.T) {
	at := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", ResourceVersion: version}}
	}
	for name, c := range map[string]struct {
		have, shown *corev1.ConfigMap
		again       bool
	}{
		"changed, and shown":            {at("5"), at("6"), true},
		"changed, and not shown":        {at("5"), at("5"), false},
		"deleted, and shown":            {at("5"), nil, true},
		"made by another, and shown":    {nil, at("6"), true},
		"made by another, not shown":    {nil, nil, false},
		"the cache is behind of an own": {at("7"), at("6"), false},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, kube.WithWrapTransport(func(http.RoundTripper) http.RoundTripper { return nil }))
			if err != nil {
				t.Fatal(err)
			}
			loop, err := New(client, Config[string]{Name: "test"})
			if err != nil {
				t.Fatal(err)
			}
			k := Watch(loop, Kind[string, *corev1.ConfigMap]{Name: "configmaps"})
			filled := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, cache.Indexers{})
			k.informer.Store(&informer{filled})
			if c.shown != nil {
				if err := filled.GetIndexer().Add(c.shown); err != nil {
					t.Fatal(err)
				}
			}
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
			defer queue.ShutDown()
			loop.install(queue)
			target := k.At("key", Ref{Namespace: "n", Name: "c"})
			target.Behind(c.have)
			if again := queue.Len() == 1; again != c.again {
				t.Errorf("the key is looked at again: %v, want %v", again, c.again)
			}
			if _, known := target.Latest(); known != c.again {
				t.Errorf("what there is is known: %v, want %v", known, c.again)
			}
			k.stopped()
		})
	}
}
