package k8sresourcelock

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestNewFromKubeconfig(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	lock, err := NewFromKubeconfig(LeasesResourceLock, "n", "l", ResourceLockConfig{Identity: "a"}, config, 10*time.Second)
	if err != nil || lock.Describe() != "n/l" || config.Timeout != 0 {
		t.Errorf("%v, %v, timeout of the argument %v", lock, err, config.Timeout)
	}
	for _, invalid := range []*rest.Config{nil, {Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}} {
		if _, err := NewFromKubeconfig(LeasesResourceLock, "n", "l", ResourceLockConfig{}, invalid, time.Second); err == nil || !strings.Contains(err.Error(), "lock n/l") {
			t.Errorf("%+v: %v", invalid, err)
		}
	}
}

func TestLeaseSpec_RoundTrip(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_780_000_000, 0))
	record := LeaderElectionRecord{
		HolderIdentity: "a", LeaseDurationSeconds: 15, AcquireTime: at, RenewTime: at, LeaderTransitions: 3, Strategy: "s/t", PreferredHolder: "b",
	}
	spec := LeaderElectionRecordToLeaseSpec(&record)
	if got := LeaseSpecToLeaderElectionRecord(&spec); !reflect.DeepEqual(*got, record) {
		t.Errorf("%+v, want %+v", *got, record)
	}
	if got := LeaseSpecToLeaderElectionRecord(nil); *got != (LeaderElectionRecord{}) {
		t.Errorf("of nil: %+v", *got)
	}
}
