package revisions

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/tagging"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var quiet = slog.New(slog.DiscardHandler)

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
	item := webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tagging.TagLabel: tag, tagging.Label: revision}}}
	for _, namespace := range namespaces {
		hook := admissionv1.MutatingWebhook{ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace}}}
		if namespace == "" { // by a URL
			hook.ClientConfig.Service = nil
		}
		item.Webhooks = append(item.Webhooks, hook)
	}
	return item
}

func pointers[T any](all ...T) (to []*T) {
	for i := range all {
		to = append(to, &all[i])
	}
	return to
}
