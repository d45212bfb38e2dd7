package node

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestExpand(t *testing.T) {
	v := &variables{values: map[string]string{}}
	v.set("A", "one")
	v.set("B", "$(A)")
	v.set("A", "1")
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(C)": "$(C)", "$$(A)": "$(A)",
		"$": "$", "$$": "$", "$(": "$(", "$(A": "$(A", "$A": "$A", "$(C)$(A)": "$(C)1", "$($(A))": "$(1)",
	} {
		if got := v.expand(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if list := v.list(); !slices.Equal(list, []string{"A=1", "B=$(A)"}) {
		t.Errorf("environment: %q", list)
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{first: time.Second, most: 5 * time.Second}
	row := func() []time.Duration {
		var waits []time.Duration
		for range 6 {
			waits = append(waits, b.next())
		}
		return waits
	}
	want := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
	for range 2 {
		if got := row(); !slices.Equal(got, want) {
			t.Errorf("delays %v, want %v", got, want)
		}
		b.reset()
	}
}

func TestOptionsValidate(t *testing.T) {
	good := Options{Config: &rest.Config{}, Dir: t.TempDir()}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
	wrong := map[string]func(*Options){
		"Config is missing":  func(o *Options) { o.Config = nil },
		"Dir is missing":     func(o *Options) { o.Dir = "" },
		"at least 10m0s":     func(o *Options) { o.TokenLifetime = time.Minute },
		"TokenRefresh":       func(o *Options) { o.TokenRefresh = 2 * time.Hour },
		"RestartDelay":       func(o *Options) { o.RestartDelay = time.Hour },
		"StopGrace":          func(o *Options) { o.StopGrace = -1 },
		"program of image":   func(o *Options) { o.Images = map[string]string{"pilot": "/no/such/file"} },
		"is not a program":   func(o *Options) { o.Images = map[string]string{"pilot": "/etc/passwd"} },
		"/ is not a program": func(o *Options) { o.Images = map[string]string{"pilot": "/"} },
	}
	for _, words := range slices.Sorted(maps.Keys(wrong)) {
		options := good
		wrong[words](&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
}

func TestPublishedAddress(t *testing.T) {
	for network, want := range map[bool]string{false: "127.70.1.2", true: "10.70.1.2"} {
		if got := (Options{PodNetwork: network}).published("127.70.1.2"); got != want {
			t.Errorf("PodNetwork %v: %s, want %s", network, got, want)
		}
	}
}
