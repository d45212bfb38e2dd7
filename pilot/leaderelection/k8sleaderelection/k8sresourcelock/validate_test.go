package k8sresourcelock

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

type noConfigMaps struct{ corev1client.ConfigMapsGetter }

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*ConfigMapLock)
		want   string // in the error; "" is none
	}{
		{"sound", func(*ConfigMapLock) {}, ""},
		{"no name", func(l *ConfigMapLock) { l.ConfigMapMeta.Name = "" }, "name is empty"},
		{"bad name", func(l *ConfigMapLock) { l.ConfigMapMeta.Name = "Istio Leader" }, `name "Istio Leader"`},
		{"no namespace", func(l *ConfigMapLock) { l.ConfigMapMeta.Namespace = "" }, "namespace is empty"},
		{"no identity", func(l *ConfigMapLock) { l.LockConfig.Identity = "" }, "identity is empty"},
		{"two words", func(l *ConfigMapLock) { l.LockConfig.Identity = "pod a" }, "white space"},
		{"key of two words", func(l *ConfigMapLock) { l.LockConfig.Key = "a b" }, `key "`},
		{"no client", func(l *ConfigMapLock) { l.Client = nil }, "no Client"},
		{"two mistakes", func(l *ConfigMapLock) { l.Client, l.LockConfig.Identity = nil, "" }, "no Client"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &ConfigMapLock{
				ConfigMapMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio-leader"},
				Client:        noConfigMaps{},
				LockConfig:    ResourceLockConfig{Identity: "pod-a", Key: "stable"},
			}
			tt.change(l)
			err := l.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateLease(t *testing.T) {
	err := (&LeaseLock{}).Validate()
	for _, want := range []string{"lease lock", "name is empty", "namespace is empty", "identity is empty", "no Client"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
