package electors

import (
	"sync"

	"github.com/go-logr/logr"
	"istio.io/istio/pkg/log"
	"k8s.io/klog/v2"
)

// quiet silences the peers' logs: hundreds of their candidates run in a process, and
// lose their leases on purpose. Istio has led klog to its own logger by now.
var quiet = sync.OnceFunc(func() {
	klog.SetLogger(logr.Discard())
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel)
	}
})
