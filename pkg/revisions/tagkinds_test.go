package revisions

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/watch"
)

func tagService(name, tag, revision string) corev1.Service {
	return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: name, Labels: map[string]string{tagging.TagLabel: tag, tagging.Label: revision}}}
}

func defaultValidators(labels map[string]string, namespaces ...string) []validator {
	v := validator{ObjectMeta: metav1.ObjectMeta{Name: tagging.DefaultValidator, Labels: labels}}
	for _, namespace := range namespaces {
		hook := admissionv1.ValidatingWebhook{ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace}}}
		if namespace == "" { // by a URL
			hook.ClientConfig.Service = nil
		}
		v.Webhooks = append(v.Webhooks, hook)
	}
	return []validator{v}
}

func TestIsMine(t *testing.T) {
	stable := map[string]string{tagging.Label: "stable"}
	for name, test := range map[string]struct {
		webhooks   []webhook
		services   []corev1.Service
		validators []validator
		// want is the revision that owns an object with the label, or "".
		want map[string]string
	}{
		"nothing": {want: map[string]string{"": "default", "default": "default", "stable": "stable", "prod": ""}},
		"tags of the revision without a name": {
			webhooks: []webhook{tagHook("a", "default", "canary"), tagHook("b", "old", "")},
			want:     map[string]string{"": "canary", "default": "canary", "old": "default", "canary": "canary"},
		},
		"a tag by a Service": {
			services: []corev1.Service{tagService("a", "prod", "stable")},
			want:     map[string]string{"prod": "stable", "": "default"},
		},
		"one tag by both": {
			webhooks: []webhook{tagHook("a", "prod", "stable")}, services: []corev1.Service{tagService("a", "prod", "stable")},
			want: map[string]string{"prod": "stable"},
		},
		"the Service counts where both differ": {
			webhooks: []webhook{tagHook("a", "prod", "canary"), tagHook("b", "test", "canary")},
			services: []corev1.Service{tagService("a", "prod", "stable")},
			want:     map[string]string{"prod": "stable", "test": "canary"},
		},
		"a Service without a revision is no tag": {
			webhooks: []webhook{tagHook("a", "prod", "canary")},
			services: []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{tagging.TagLabel: "prod"}}}, tagService("b", "", "stable")},
			want:     map[string]string{"prod": "canary"},
		},
		"the default tag by a Service": {
			services: []corev1.Service{tagService("a", "default", "stable")},
			want:     map[string]string{"": "stable", "default": "stable"},
		},
		"the default tags differ": {
			webhooks: []webhook{tagHook("a", "default", "canary")}, services: []corev1.Service{tagService("a", "default", "stable")},
			want: map[string]string{"": "stable", "default": "stable"},
		},
		"the default validator": {
			validators: defaultValidators(stable, "istio-system"),
			want:       map[string]string{"": "stable", "stable": "stable", "default": "default"},
		},
		"a webhook without calls":  {validators: defaultValidators(stable), want: map[string]string{"": "stable"}},
		"one by a URL":             {validators: defaultValidators(stable, ""), want: map[string]string{"": "stable"}},
		"of another control plane": {validators: defaultValidators(stable, "istio-system", "elsewhere"), want: map[string]string{"": "default"}},
		"without a revision":       {validators: defaultValidators(nil, "istio-system"), want: map[string]string{"": "default"}},
		"of the one without a name": {
			validators: defaultValidators(map[string]string{tagging.Label: ""}, "istio-system"), want: map[string]string{"": "default"},
		},
		"a default tag overrides the validator": {
			webhooks: []webhook{tagHook("a", "default", "canary")}, validators: defaultValidators(stable),
			want: map[string]string{"": "canary", "default": "canary"},
		},
		"beside other tags": {
			services: []corev1.Service{tagService("a", "default", "canary")}, webhooks: []webhook{tagHook("b", "prod", "canary")},
			validators: defaultValidators(stable), want: map[string]string{"": "canary", "prod": "canary"},
		},
		"one by a Service too": {
			services: []corev1.Service{tagService("a", "default", "canary")}, validators: defaultValidators(stable),
			want: map[string]string{"": "canary", "default": "canary"},
		},
		"and one of the revision without a name": {
			webhooks: []webhook{tagHook("a", "default", "default")}, validators: defaultValidators(stable),
			want: map[string]string{"": "default", "default": "default"},
		},
		"another tag does not": {
			webhooks: []webhook{tagHook("a", "prod", "canary")}, validators: defaultValidators(stable),
			want: map[string]string{"": "stable", "prod": "canary"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for label, want := range test.want {
				for _, revision := range []string{"stable", "canary", "default"} {
					w := NewTags(nil, Config{Revision: revision, Logger: quiet}).(*tagWatcher)
					w.readWebhooks(pointers(test.webhooks...))
					w.readServices(pointers(test.services...))
					w.readValidator(pointers(test.validators...))
					objects := []metav1.ObjectMeta{{Labels: map[string]string{tagging.Label: label}}}
					if label == "" {
						objects = append(objects, metav1.ObjectMeta{})
					}
					for _, object := range objects {
						if got := w.IsMine(object); got != (revision == want) {
							t.Errorf("label %q, revision %s: mine is %v, want the revision %q", label, revision, got, want)
						}
					}
				}
			}
		})
	}
}

// A tag of another control plane is known, but gives no object to a revision of this one.
func TestHasTag(t *testing.T) {
	elsewhere := tagHook("b", "theirs", "stable")
	elsewhere.Webhooks = []admissionv1.MutatingWebhook{{ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "elsewhere"}}}}
	w := NewTags(nil, Config{Revision: "stable", Logger: quiet}).(*tagWatcher)
	ours, canarys := tagHook("a", "ours", "stable"), tagHook("c", "canarys", "canary")
	w.readWebhooks(pointers(ours, canarys, elsewhere, tagHook("d", "", "stable")))
	w.readServices(nil)
	w.readValidator(nil)
	has := func() (all []string) {
		for _, name := range []string{"stable", "ours", "canarys", "theirs", "none", ""} {
			if w.HasTag(name) {
				all = append(all, name)
			}
		}
		return all
	}
	if got, want := has(), []string{"stable", "ours", "canarys", "theirs"}; !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	if mine := w.GetMyTags(); !mine.Equal(sets.New("stable", "ours")) || w.IsMine(metav1.ObjectMeta{Labels: map[string]string{tagging.Label: "theirs"}}) {
		t.Errorf("tags of the revision: %v", mine)
	}
	w.GetMyTags().Insert("changed by a caller")
	if w.GetMyTags().Has("changed by a caller") {
		t.Error("a caller changed the watcher's set")
	}
	before, _ := w.broadcaster.read()
	w.readWebhooks(pointers(ours, canarys))
	if after, _ := w.broadcaster.read(); after.equal(before) || w.HasTag("theirs") {
		t.Error("the tag of another control plane remains, or its end is not delivered")
	}
	if w.readWebhooks(pointers(webhook{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, canarys)); w.HasTag("ours") {
		t.Error("the tag of a webhook whose labels were removed remains")
	}
	if w.readWebhooks(nil); w.HasTag("canarys") {
		t.Error("the tag of a webhook that a later list does not have remains")
	}
}

func TestTagWatcher_SyncsAllKinds(t *testing.T) {
	reads := map[string]func(*tagWatcher){
		"webhooks":  func(w *tagWatcher) { w.readWebhooks(nil) },
		"services":  func(w *tagWatcher) { w.readServices(nil) },
		"validator": func(w *tagWatcher) { w.readValidator(nil) },
	}
	for last := range reads {
		w := NewTags(nil, Config{Logger: quiet}).(*tagWatcher)
		for name, read := range reads {
			if name != last {
				read(w)
			}
		}
		if w.HasSynced() || !w.IsMine(metav1.ObjectMeta{}) {
			t.Errorf("without %s: synced %v", last, w.HasSynced())
		}
		if NewTagWatcher(nil, "stable", "").IsMine(metav1.ObjectMeta{}) {
			t.Error("a named revision owns unlabelled objects before the first read")
		}
		if reads[last](w); !w.HasSynced() {
			t.Errorf("with %s: not synced", last)
		}
	}
}

const (
	validatorsPath = "validatingwebhookconfigurations"
	servicesPath   = "mesh/services"
	validatorName  = " metadata.name=istiod-default-validator"
)

func TestTagWatcher_ThreeKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		validator := func(revision string) *validator {
			return &defaultValidators(map[string]string{tagging.Label: revision}, "mesh")[0]
		}
		other := *validator("canary")
		other.Name = "another"
		stored := validator("stable")
		service := tagService("b", "prod", "stable")
		s := apiserver.New(&other, stored, &service)
		put(s, tagHook("a", "old", "stable"))
		w := NewTags(clientOf(t, s), Config{Revision: "stable", Namespace: "mesh", Logger: quiet})
		told := 0
		w.AddHandler(func(sets.Set[string]) { told++ })
		end := runs(w.Run)
		check := func(step string, times int, unlabelled bool, tags ...string) {
			t.Helper()
			synctest.Wait()
			if got := w.GetMyTags(); !got.Equal(sets.New(append(tags, "stable")...)) || told != times || w.IsMine(metav1.ObjectMeta{}) != unlabelled {
				t.Errorf("%s: tags %v, handler called %d times, want %d; objects without a label are mine: %v", step, sets.List(got), told, times, !unlabelled)
			}
		}
		check("as read", 1, true, "old", "prod")
		<-time.After(watch.MinWatch - time.Second)
		check("later", 1, true, "old", "prod")
		want := []string{
			"list " + servicesPath + " istio.io/tag", "list " + hooksPath + " istio.io/tag", "list " + validatorsPath + validatorName,
			"watch " + servicesPath + " istio.io/tag", "watch " + hooksPath + " istio.io/tag", "watch " + validatorsPath + validatorName,
		}
		var got []string
		for _, r := range s.Requests() {
			got = append(got, described(r))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("asked for %q, want %q", got, want)
		}
		service = tagService("b", "new", "stable")
		s.Put(&service)
		check("another tag", 2, true, "old", "new")
		s.Put(validator("canary"))
		check("another default", 3, false, "old", "new")
		s.Put(validator("stable"))
		check("ours again", 4, true, "old", "new")
		s.Delete(validatorsPath, "", tagging.DefaultValidator)
		check("no validator", 5, false, "old", "new")
		s.Delete("services", "mesh", "b")
		check("no Service", 6, false, "old")
		// The read before the next watch shows changes during the gap.
		s.SetWatchDelay(time.Hour)
		s.Put(validator("stable"))
		check("not seen", 6, false, "old")
		s.EndWatches()
		<-time.After(time.Minute)
		check("read again", 7, true, "old")
		end()
	})
}

func TestTagWatcher_Forbidden(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		missing := []string{
			"list " + servicesPath + " istio.io/tag", "list " + validatorsPath + validatorName,
			"get " + validatorsPath + " " + tagging.DefaultValidator,
		}
		service := tagService("b", "prod", "stable")
		s := apiserver.New(&service, &defaultValidators(map[string]string{tagging.Label: "stable"})[0])
		put(s, tagHook("a", "old", "stable"))
		forbid(s, missing...)
		w := NewTags(clientOf(t, s), Config{Revision: "stable", Namespace: "mesh", Logger: slog.New(slog.NewTextHandler(&out, nil))})
		end := runs(w.Run)
		synctest.Wait()
		if !w.HasSynced() || !w.GetMyTags().Equal(sets.New("stable", "old")) || w.IsMine(metav1.ObjectMeta{}) {
			t.Errorf("synced %v, tags %v", w.HasSynced(), w.GetMyTags())
		}
		<-time.After(10 * time.Minute)
		asked := map[string]int{}
		for _, r := range s.Requests() {
			asked[described(r)]++
		}
		for _, what := range missing {
			if n := asked[what]; n < 100 || n > 140 { // one per 5 s
				t.Errorf("asked %d times for %s", n, what)
			}
		}
		if problem := w.(reporter).Problem(); problem == nil || !strings.Contains(problem.Error(), "list services") || !strings.Contains(problem.Error(), "get validator") {
			t.Errorf("it reports %v", problem)
		}
		forbid(s)
		<-time.After(time.Minute)
		if !w.GetMyTags().Equal(sets.New("stable", "old", "prod")) || !w.IsMine(metav1.ObjectMeta{}) || w.(reporter).Problem() != nil {
			t.Errorf("once allowed: tags %v, problem %v", w.GetMyTags(), w.(reporter).Problem())
		}
		// Values stay after a permission is removed.
		forbid(s, missing...)
		s.EndWatches()
		<-time.After(time.Minute)
		if !w.GetMyTags().Equal(sets.New("stable", "old", "prod")) || !w.IsMine(metav1.ObjectMeta{}) {
			t.Errorf("forbidden again: tags %v", w.GetMyTags())
		}
		end()
	})
	for line, n := range map[string]int{
		`verb="list services" instead="keeping the tags of Services that were read last, if any"`: 2,
		`verb="list validator" instead="reading it with get"`:                                     2,
		`verb="get validator" instead="keeping the default validator that was read last, if any"`: 2,
		`msg="permission denied"`: 6,
	} {
		if got := strings.Count(out.String(), line); got != n {
			t.Errorf("said %d times %s, want %d:\n%s", got, line, n, &out)
		}
	}
}
