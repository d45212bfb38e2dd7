package revisions

import (
	"slices"
	"testing"

	"incumbent.dev/incumbent/internal/tagging"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// With Fallback the first existing webhook of the control plane has the default revision, as for DefaultRevision.
func TestDefaultWatcher_Fallback(t *testing.T) {
	own, shared := tagging.DefaultTagWebhook("mesh"), tagging.DefaultTagWebhook("")
	for name, test := range map[string]struct {
		own, shared *webhook
		want        string
	}{
		"neither":                     {want: ""},
		"own":                         {own: ptrTo(tagHook(own, "default", "east")), want: "east"},
		"shared":                      {shared: ptrTo(tagHook(shared, "default", "stable")), want: "stable"},
		"both":                        {own: ptrTo(tagHook(own, "default", "east")), shared: ptrTo(tagHook(shared, "default", "stable")), want: "east"},
		"own without a revision":      {own: &webhook{ObjectMeta: metav1.ObjectMeta{Name: own}}, shared: ptrTo(tagHook(shared, "default", "stable")), want: "stable"},
		"shared calls elsewhere":      {shared: ptrTo(tagHook(shared, "default", "stable", "istio-system")), want: ""},
		"shared calls this plane":     {shared: ptrTo(tagHook(shared, "default", "stable", "mesh")), want: "stable"},
		"the revision without a name": {own: ptrTo(tagHook(own, "default", "")), shared: ptrTo(tagHook(shared, "default", "stable")), want: "default"},
	} {
		hooks := slices.DeleteFunc([]*webhook{test.own, test.shared}, func(hook *webhook) bool { return hook == nil })
		if got := tagging.DefaultRevision("mesh", hooks...); got != test.want {
			t.Errorf("%s: DefaultRevision is %q, want %q", name, got, test.want)
		}
		w := NewDefault(nil, Config{Namespace: "mesh", Fallback: true, Logger: quiet}).(*defaultWatcher)
		read := func(name string, item *webhook) {
			if item == nil {
				w.change(name, nil)
			} else {
				w.change(name, []*webhook{item})
			}
		}
		if read(shared, test.shared); w.HasSynced() {
			t.Errorf("%s: synced after one webhook", name)
		}
		if read(own, test.own); !w.HasSynced() || w.GetDefault() != test.want {
			t.Errorf("%s: synced %v, default %q, want %q", name, w.HasSynced(), w.GetDefault(), test.want)
		}
		if w.change(own, nil); w.GetDefault() == "east" {
			t.Errorf("%s: default is still east", name)
		}
	}
}

// An empty namespace is istio-system, and without Fallback the owner of the webhook does not matter.
func TestDefaultRevision_UsualNamespace(t *testing.T) {
	ours, theirs := tagHook(tagging.DefaultTagWebhook(""), "default", "stable", "istio-system"), tagHook(tagging.DefaultTagWebhook(""), "default", "stable", "mesh")
	if got := tagging.DefaultRevision("", &ours) + "," + tagging.DefaultRevision("istio-system", &ours) + "," + tagging.DefaultRevision("", &theirs); got != "stable,stable," {
		t.Error(got)
	}
	w := NewDefault(nil, Config{Logger: quiet}).(*defaultWatcher)
	if w.change(theirs.Name, []*webhook{&theirs}); w.GetDefault() != "stable" {
		t.Errorf("without Fallback: %q", w.GetDefault())
	}
}

func ptrTo[T any](v T) *T { return &v }
