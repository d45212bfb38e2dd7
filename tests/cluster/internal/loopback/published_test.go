package loopback

import "testing"

func TestPublished(t *testing.T) {
	for actual, want := range map[string]string{"127.70.1.2": "10.70.1.2", "192.0.2.1": "192.0.2.1", "name": "name"} {
		got := Published(actual)
		if got != want || Actual(got) != actual {
			t.Errorf("%s is published as %s, want %s, and becomes %s", actual, got, want, Actual(got))
		}
	}
}
