package namespace

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

func TestNewNamesAllThatIsWrong(t *testing.T) {
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(client, Config{Excluded: []string{"kube-system", "No_Name"}, BundleInterval: -time.Second, Workers: -1})
	for _, want := range []string{"file is missing", `"No_Name"`, "-1s", "-1 workers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if _, err := New(nil, Config{BundleFile: "x"}); err == nil {
		t.Error("made without a client")
	}
	if _, err := New(client, Config{BundleFile: "x"}); err != nil {
		t.Error(err)
	}
}
