package controllerruntime

import (
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
