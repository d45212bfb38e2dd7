package revisions

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

var quiet = slog.New(slog.DiscardHandler)

func TestDefaultTagWebhook(t *testing.T) {
	for namespace, want := range map[string]string{
		"":             "istio-revision-tag-default",
		"istio-system": "istio-revision-tag-default",
		"mesh":         "istio-revision-tag-default-mesh",
	} {
		if got := DefaultTagWebhook(namespace); got != want {
			t.Errorf("in %q it is %q, want %q", namespace, got, want)
		}
	}
}

func TestRun_NoClient(t *testing.T) {
	var out bytes.Buffer
	config := Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
	NewDefault(nil, config).Run(nil)
	NewTags(nil, config).Run(nil)
	NewDefault(nil, config).AddHandler(nil)
	if got := strings.Count(out.String(), "no client"); got != 2 {
		t.Errorf("reported %d times:\n%s", got, &out)
	}
}

func tagHook(name, tag, revision string, namespaces ...string) webhook {
	item := webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tagLabel: tag, revisionLabel: revision}}}
	for _, namespace := range namespaces {
		hook := admissionv1.MutatingWebhook{ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace}}}
		if namespace == "" { // by a URL
			hook.ClientConfig.Service = nil
		}
		item.Webhooks = append(item.Webhooks, hook)
	}
	return item
}

// readAll lets the watcher read these webhooks and no other objects.
func (w *tagWatcher) readAll(all ...webhook) {
	w.sink().replace(all)
	w.serviceSink().replace(nil)
	w.validatorSink().replace(nil)
}

func TestTags(t *testing.T) {
	object := func(revision string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Labels: map[string]string{revisionLabel: revision}}
	}
	for name, test := range map[string]struct {
		revision string
		webhooks []webhook
		tags     []string
		mine     []metav1.ObjectMeta
		others   []metav1.ObjectMeta
	}{
		"two tags, one the default": {
			"stable",
			[]webhook{tagHook("a", "prod", "stable"), tagHook("b", "default", "stable"), tagHook("c", "test", "canary")},
			[]string{"default", "prod", "stable"},
			[]metav1.ObjectMeta{object("stable"), object("prod"), object("default"), object(""), {}},
			[]metav1.ObjectMeta{object("test"), object("canary")},
		},
		"the default moved away from it": {
			"", []webhook{tagHook("a", "default", "canary"), tagHook("b", "old", "")}, []string{"default", "old"},
			[]metav1.ObjectMeta{object("old")},
			[]metav1.ObjectMeta{object("default"), object(""), {}, object("canary")},
		},
		"of another control plane": {
			"stable",
			[]webhook{tagHook("a", "prod", "stable", "other"), tagHook("b", "test", "stable", "other", "istio-system")},
			[]string{"stable", "test"},
			[]metav1.ObjectMeta{object("test")},
			[]metav1.ObjectMeta{object("prod")},
		},
		"by a URL": {
			"stable",
			[]webhook{{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{tagLabel: "prod", revisionLabel: "stable"}},
				Webhooks:   []admissionv1.MutatingWebhook{{ClientConfig: admissionv1.WebhookClientConfig{URL: new(string)}}},
			}},
			[]string{"prod", "stable"}, []metav1.ObjectMeta{object("prod")}, nil,
		},
		"no revision, to the one without a name": {
			"",
			[]webhook{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{tagLabel: "prod"}}}, tagHook("b", "", "default")},
			[]string{"default"}, nil, []metav1.ObjectMeta{object("prod")},
		},
		"no revision": {
			"stable",
			[]webhook{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{tagLabel: "prod"}}}},
			[]string{"stable"}, []metav1.ObjectMeta{object("stable")}, []metav1.ObjectMeta{object("prod")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewTags(nil, Config{Revision: test.revision, Logger: quiet}).(*tagWatcher)
			if w.HasSynced() || len(w.GetMyTags()) != 1 {
				t.Errorf("before anything was read: synced %v, tags %v", w.HasSynced(), w.GetMyTags())
			}
			w.readAll(test.webhooks...)
			if got := w.GetMyTags(); !got.Equal(sets.New(test.tags...)) {
				t.Errorf("tags are %v, want %v", sets.List(got), test.tags)
			}
			for _, meta := range test.mine {
				if !w.IsMine(meta) {
					t.Errorf("not mine: %v", meta.Labels)
				}
			}
			for _, meta := range test.others {
				if w.IsMine(meta) {
					t.Errorf("mine: %v", meta.Labels)
				}
			}
			w.GetMyTags().Insert("changed by a caller")
			if w.GetMyTags().Has("changed by a caller") {
				t.Error("a caller changed the watcher's set")
			}
		})
	}
}
