package namespace

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/certs"
)

// TestReconcile_Writes counts the writes within ten minutes. After an answer that shows a stale
// cache, the next attempt follows after half a minute; after another error, with back-off.
func TestReconcile_Writes(t *testing.T) {
	content := string(certs.CA(t))
	file := bundleFile(t, content)
	maps := schema.GroupResource{Resource: "configmaps"}
	now := metav1.Now()
	ending := apierrors.NewForbidden(maps, "a", errors.New("terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	deleted := space("a")
	deleted.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		stored    *corev1.ConfigMap
		namespace *corev1.Namespace
		answer    error
		min, max  int
	}{
		"correct":                       {stored: bundleMap(content)},
		"missing":                       {min: 1, max: 1},
		"different":                     {stored: bundleMap("x"), min: 1, max: 1},
		"binary key":                    {stored: bundleMap("", func(m *corev1.ConfigMap) { m.BinaryData = map[string][]byte{BundleKey: {1}} }), min: 1, max: 1},
		"ConfigMap is being deleted":    {stored: bundleMap("", func(m *corev1.ConfigMap) { m.DeletionTimestamp = &now })},
		"namespace is excluded":         {namespace: space("kube-system")},
		"namespace is being deleted":    {namespace: deleted},
		"namespace is terminating":      {namespace: terminating("a")},
		"create: already exists":        {answer: apierrors.NewAlreadyExists(maps, ConfigMapName), min: 20, max: 21},
		"create: namespace terminating": {answer: ending, min: 20, max: 21},
		"create: forbidden":             {answer: apierrors.NewForbidden(maps, ConfigMapName, errors.New("no")), min: 25, max: 32},
		"patch: not found":              {stored: bundleMap(""), answer: apierrors.NewNotFound(maps, ConfigMapName), min: 20, max: 21},
		"patch: conflict":               {stored: bundleMap(""), answer: apierrors.NewConflict(maps, ConfigMapName, errors.New("no")), min: 25, max: 32},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				if test.namespace == nil {
					test.namespace = space("a")
				}
				s.Put(test.namespace.DeepCopy())
				if test.stored != nil {
					s.Put(test.stored.DeepCopy())
				}
				s.Answer(func() error { return test.answer })
				s.run(s.controller(Config{BundleFile: file}), func() {
					for range 10 { // changes that the controller does not read
						time.Sleep(time.Second)
						changed := test.namespace.DeepCopy()
						changed.Labels = map[string]string{"changed": time.Now().Format("05")}
						s.Put(changed)
					}
					time.Sleep(10*time.Minute - 10*time.Second)
					synctest.Wait()
					if n := s.count(); n < test.min || n > test.max {
						t.Errorf("%d writes, want %d to %d", n, test.min, test.max)
					}
				})
				if test.answer == nil && test.min == 1 && s.bundle("a") != content {
					t.Errorf("the ConfigMap has %q", s.bundle("a"))
				}
			})
		})
	}
}

func TestReconcile_LogsErrors(t *testing.T) {
	file := bundleFile(t, string(certs.CA(t)))
	yes := true
	for name, test := range map[string]struct {
		stored *corev1.ConfigMap
		want   string
	}{
		"create":    {want: "create ConfigMap a/" + ConfigMapName + ": configmaps"},
		"patch":     {bundleMap(""), "update ConfigMap a/" + ConfigMapName + ": configmaps"},
		"immutable": {bundleMap("", func(m *corev1.ConfigMap) { m.Immutable = &yes }), "it is immutable; delete it so that it can be recreated: configmaps"},
		"mutable":   {bundleMap("", func(m *corev1.ConfigMap) { m.Immutable = new(bool) }), "update ConfigMap a/" + ConfigMapName + ": configmaps"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, space("a"))
				if test.stored != nil {
					s.Put(test.stored.DeepCopy())
				}
				s.Answer(func() error {
					if s.count() < 5 {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, ConfigMapName, errors.New("no"))
					}
					return nil
				})
				var events []string
				event := func(about runtime.Object, kind, reason, message string, args ...any) {
					of := about.(*corev1.ObjectReference)
					events = append(events, fmt.Sprintf("%s %s/%s %s %s: ", of.Kind, of.Namespace, of.Name, kind, reason)+fmt.Sprintf(message, args...))
				}
				s.run(s.controller(Config{BundleFile: file, Event: event}), func() { time.Sleep(time.Minute) })
				if want := "ConfigMap a/" + ConfigMapName + " Warning BundleNotWritten: "; len(events) != 1 || !contains(events[0], want, test.want) {
					t.Errorf("Events %q, want %q", events, want+test.want)
				}
				if s.Log.Count("reconcile failed") != 1 || s.Log.Count(test.want) != 1 || s.Log.Count("reconcile succeeded again") != 1 || s.count() != 5 {
					t.Errorf("%d attempts, want %q in the log:\n%s", s.count(), test.want, &s.Log)
				}
			})
		})
	}
}

// Create sets the label that istiod sets; patch keeps the content of others.
func TestReconcile_Content(t *testing.T) {
	content := string(certs.CA(t))
	file := bundleFile(t, content)
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, space("a"), space("b"), bundleMap("", func(m *corev1.ConfigMap) {
			m.Labels = map[string]string{"theirs": "1"}
			m.Data["theirs"] = "2"
			m.BinaryData = map[string][]byte{BundleKey: {1}, "binary": {2}}
		}))
		s.run(s.controller(Config{BundleFile: file}), func() {})
		if got := s.stored("b"); got == nil || len(got.Labels) != 1 || got.Labels["istio.io/config"] != "true" || len(got.Data) != 1 || got.Data["root-cert.pem"] != content {
			t.Errorf("created %v", got)
		}
		if got := s.stored("a"); got.Labels["theirs"] != "1" || got.Data["theirs"] != "2" || len(got.BinaryData) != 1 || got.Data[BundleKey] != content {
			t.Errorf("patched to %v", got)
		}
	})
}

// A cache that has not shown the first ConfigMap does not hide that the namespace was recreated.
func TestReconcile_NamespaceRecreated(t *testing.T) {
	file := bundleFile(t, string(certs.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, space("a"))
		s.OnRead(func(r apiserver.Request) apiserver.Fault {
			switch {
			case r.Resource != "configmaps" || r.Verb != "watch":
				return apiserver.Fault{}
			case r.URL.Query().Get("sendInitialEvents") == "true":
				return apiserver.Fault{Err: apierrors.NewInvalid(schema.GroupKind{}, "", nil)}
			default:
				return apiserver.Fault{Hang: true}
			}
		})
		s.run(s.controller(Config{BundleFile: file}), func() {
			labelled := space("a")
			labelled.Status.Phase = corev1.NamespaceActive
			s.Put(labelled)
			synctest.Wait()
			if n := s.count(); n != 1 {
				t.Errorf("%d writes, want 1", n)
			}
			s.Delete("configmaps", "a", ConfigMapName)
			s.Delete("namespaces", "", "a")
			recreated := space("a")
			recreated.UID = "second"
			s.Put(recreated)
			synctest.Wait()
			if n := s.count(); n != 2 || s.bundle("a") == "" {
				t.Errorf("%d writes, want 2", n)
			}
		})
	})
}

// Only namespaces that match a selector get the bundle. A namespace that stops matching keeps it without updates.
func TestReconcile_DiscoverySelectors(t *testing.T) {
	content := string(certs.CA(t))
	file := bundleFile(t, content)
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, space("a"))
		labelled := func(labels map[string]string) {
			n := space("a")
			n.Labels = labels
			s.Put(n)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		s.run(s.controller(Config{BundleFile: file, DiscoverySelectors: []string{"mesh=on", "team in (x,y)"}}), func() {
			for _, none := range []map[string]string{nil, {"mesh": "off", "team": "z"}} {
				if labelled(none); s.stored("a") != nil {
					t.Errorf("labels %v: the namespace has a ConfigMap", none)
				}
			}
			if labelled(map[string]string{"team": "y"}); s.bundle("a") != content {
				t.Error("the namespace matches and has no bundle")
			}
			labelled(nil)
			s.Put(bundleMap("changed"))
			if time.Sleep(time.Minute); s.bundle("a") != "changed" {
				t.Error("the ConfigMap of a namespace that does not match was written")
			}
			if labelled(map[string]string{"mesh": "on"}); s.bundle("a") != content {
				t.Error("the namespace matches again and has another bundle")
			}
		})
	})
}
