package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// A run function's life is two lines in the log, and how it ended is the election's to know.
func TestLinesOfARunFunction(t *testing.T) {
	for _, wrong := range []error{nil, errAway} {
		text := &harness.Log{}
		ran := false
		err := logged(slog.New(slog.NewTextHandler(text, nil)), func(context.Context) error {
			ran = text.Count("run function started") == 1 && text.Count("run function ended") == 0
			return wrong
		})(t.Context())
		if !ran || !errors.Is(err, wrong) {
			t.Errorf("ran after its line: %v, ended with %v", ran, err)
		}
		level := map[bool]string{true: "level=INFO", false: "level=ERROR"}[wrong == nil]
		if text.Count("run function ended", level) != 1 || text.Count() != 2 || (text.Count(errAway.Error()) == 1) != (wrong != nil) {
			t.Errorf("it says\n%s", text)
		}
	}
}

// gone is a reader of a page who went away.
type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) { return 0, errAway }

// A reader who goes away is a line for those who debug, and nobody else is.
func TestReadersOfThePageWhoGoAway(t *testing.T) {
	text := &harness.Log{}
	config := goodConfig()
	config.Logger = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := newServer(config, newController().rows())
	if err != nil {
		t.Fatal(err)
	}
	const line = "reader of /debug/elections went away"
	if code, _ := get(t, s, "/debug/elections"); code != http.StatusOK || text.Count(line) != 0 {
		t.Errorf("%d, and it says\n%s", code, text)
	}
	s.electionsPage(gone{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/debug/elections", nil))
	if text.Count("level=DEBUG", line, errAway.Error()) != 1 {
		t.Errorf("it says\n%s", text)
	}
}
