package controllerruntime

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

// logged has the logs of all elections.
var logged harness.Log

// ofElections writes the lines of elections to logged.
type ofElections struct{}

func (ofElections) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(" election=")) {
		return logged.Write(line)
	}
	return len(line), nil
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(ofElections{}, nil)))
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
