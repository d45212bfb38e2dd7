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
	v := variables{"A": "1", "B": "$(A)"}
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

func TestRestartDelay(t *testing.T) {
	o := Options{RestartDelay: time.Second, MaxRestartDelay: 5 * time.Second}
	for n, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := o.restartDelay(n); got != want {
			t.Errorf("restart %d: %v, want %v", n, got, want)
		}
	}
}

func TestLastLines(t *testing.T) {
	for count, want := range map[int]string{-1: "a\nb\nc", 0: "", 1: "c", 2: "b\nc", 3: "a\nb\nc", 4: "a\nb\nc"} {
		for _, end := range []string{"", "\n"} {
			got := string(lastLines([]byte("a\nb\nc"+end), count))
			if strings.TrimSuffix(got, "\n") != want || count == 0 && got != "" {
				t.Errorf("%d lines with end %q: %q", count, end, got)
			}
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	good := Options{Config: &rest.Config{}, Dir: t.TempDir()}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
	wrong := map[string]func(*Options){
		"Config is missing":   func(o *Options) { o.Config = nil },
		"Dir is missing":      func(o *Options) { o.Dir = "" },
		`image "pilot": find`: func(o *Options) { o.Images = map[string]string{"pilot": "/no/such/file"} },
		"is not a program":    func(o *Options) { o.Images = map[string]string{"pilot": "/etc/passwd"} },
		"/ is not a program":  func(o *Options) { o.Images = map[string]string{"pilot": "/"} },
	}
	for _, words := range slices.Sorted(maps.Keys(wrong)) {
		options := good
		wrong[words](&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
}
