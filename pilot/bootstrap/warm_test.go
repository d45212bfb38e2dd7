package bootstrap

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// taught is a watcher of tags that knows what a test tells it.
type taught struct{ handlers []revisions.TagHandler }

func (w *taught) Run(stop <-chan struct{})          { <-stop }
func (w *taught) HasSynced() bool                   { return false }
func (w *taught) AddHandler(h revisions.TagHandler) { w.handlers = append(w.handlers, h) }
func (w *taught) GetMyTags() sets.Set[string]       { return nil }
func (w *taught) IsMine(metav1.ObjectMeta) bool     { return false }

func (w *taught) tell() {
	for _, h := range w.handlers {
		h(sets.New("stable"))
	}
}

// A row that goes by tags warms its controller when they are known, and no other row waits for them. How
// warming ends is how the controller's does, and a stop ends the wait.
func TestATaggedRowWaitsForTheTags(t *testing.T) {
	errCold := errors.New("cold")
	for name, test := range map[string]struct {
		tagged, told, stopped bool
		want                  error
		warmed                int
	}{
		"not tagged":       {false, false, false, errCold, 1},
		"tags unknown":     {true, false, true, context.Canceled, 0},
		"tags known":       {true, true, false, errCold, 1},
		"tags known twice": {true, true, true, errCold, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watcher := &taught{}
				s := &site{tags: newTags(watcher)}
				controller := &coldController{err: errCold}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- s.warm(election{tagged: test.tagged}, controller, "x", quiet)(ctx) }()
				synctest.Wait()
				if test.tagged && controller.warmed > 0 {
					t.Error("it is warmed before the tags are known")
				}
				if test.told {
					watcher.tell()
					watcher.tell()
				}
				synctest.Wait()
				if test.stopped {
					cancel()
				}
				if err := <-ended; !errors.Is(err, test.want) || controller.warmed != test.warmed {
					t.Errorf("%v, and it was warmed %d times", err, controller.warmed)
				}
			})
		})
	}
}

// coldController is a job whose Warm fails.
type coldController struct {
	controller
	err    error
	warmed int
}

func (c *coldController) Warm(context.Context) error {
	c.warmed++
	return c.err
}

// A remote cluster's fence could not tell this one's Pods, and none is expected there; its locks have keys of their own.
func TestWhatASiteExpectsOfItsCluster(t *testing.T) {
	config := goodConfig()
	config.Fence, config.DisableGatewayAPI = true, true
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: "http://127.0.0.2:1"}, ""); err != nil {
		t.Fatal(err)
	}
	var on []bool
	var keys []string
	for _, config := range []Config{config, config.AtRemote()} {
		s, err := newSite(config.withDefaults(), leaderelection.NewSet(), config.rows())
		if err != nil {
			t.Fatal(err)
		}
		on = append(on, s.fence != nil)
		for _, le := range s.mine {
			if le.Status().ElectionID == leaderelection.NamespaceController {
				keys = append(keys, le.Status().Key)
			}
		}
	}
	if !slices.Equal(on, []bool{true, false}) {
		t.Errorf("a fence is expected: %v", on)
	}
	if len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("the keys are %q", keys)
	}
}
