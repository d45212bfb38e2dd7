package gatewaydeploy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestConfig(t *testing.T) {
	got := Config{}.withDefaults()
	if got.Revision != "default" || got.Logger == nil || !got.IsMine(metav1.ObjectMeta{}) {
		t.Errorf("the defaults are %+v", got)
	}
	set := Config{Revision: "a", IsMine: func(metav1.ObjectMeta) bool { return false }}.withDefaults()
	if set.Revision != "a" || set.IsMine(metav1.ObjectMeta{}) {
		t.Errorf("configured values became %+v", set)
	}
	if err := (Config{Namespace: "system", Objects: []string{"podDisruptionBudget", "networkPolicy"}}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{Namespace: "system", Objects: []string{"deployment"}}).Validate(); err == nil || !strings.Contains(err.Error(), `"deployment" is not podDisruptionBudget or networkPolicy`) {
		t.Errorf("Validate returned %v", err)
	}
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	if _, err := New(client, Config{Namespace: "No_Name"}); err == nil || !strings.Contains(err.Error(), `gateway deployment controller: system namespace "No_Name"`) {
		t.Errorf("New returned %v", err)
	}
}
