package history

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestJudge(t *testing.T) {
	w := func(version uint64, by, run string, token uint64) Write {
		return Write{Version: version, By: by, Run: run, Token: token}
	}
	for name, c := range map[string]struct {
		writes []Write
		again  bool
		says   string // empty: nothing is wrong
	}{
		"one after the other":      {[]Write{w(11, "a", "1", 10), w(12, "a", "1", 10), w(21, "b", "2", 20), w(31, "a", "3", 30)}, false, ""},
		"given in another order":   {[]Write{w(31, "a", "3", 30), w(12, "a", "1", 10), w(21, "b", "2", 20), w(11, "a", "1", 10)}, false, ""},
		"interleaved":              {[]Write{w(11, "a", "1", 10), w(21, "b", "2", 20), w(22, "a", "1", 10)}, false, "two at once"},
		"one's own two terms":      {[]Write{w(11, "a", "1", 10), w(21, "a", "2", 20), w(22, "a", "1", 10)}, true, "two at once"},
		"a term that comes late":   {[]Write{w(21, "b", "1", 20), w(22, "a", "2", 10)}, false, "token 10, after b with the token 20"},
		"a term of two processes":  {[]Write{w(11, "a", "1", 10), w(12, "b", "2", 10)}, true, "token 10, after a"},
		"twice in a term":          {[]Write{w(11, "a", "1", 10), w(12, "a", "2", 10)}, false, "token 10, after a"},
		"twice in a term, allowed": {[]Write{w(11, "a", "1", 10), w(12, "a", "2", 10)}, true, ""},
		"and what it left behind":  {[]Write{w(11, "a", "1", 10), w(12, "a", "2", 10), w(13, "a", "1", 10)}, true, ""},
		"a term of the future":     {[]Write{w(11, "a", "1", 12)}, false, "before its term 12 was made"},
		"another election's token": {[]Write{w(21, "b", "1", 20), {Version: 22, By: "a", Run: "2", Election: "other", Token: 10}}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(Judge(c.writes, c.again), "; ")
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
	if n := Runs([]Write{w(11, "a", "1", 10), w(12, "a", "1", 10), w(21, "b", "2", 20)}); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

func TestOf(t *testing.T) {
	want := Write{Version: 11, By: "a", Run: "a-1", Token: 10}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "w", ResourceVersion: "11", Labels: want.Labels()}}
	if got, err := Of(object); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	object.ResourceVersion = "new"
	if _, err := Of(object); err == nil || !strings.Contains(err.Error(), "resourceVersion of w") {
		t.Errorf("an unreadable version: %v", err)
	}
	object.ResourceVersion, object.Labels = "11", nil
	if _, err := Of(object); err == nil || !strings.Contains(err.Error(), TokenLabel) {
		t.Errorf("no label: %v", err)
	}
}
