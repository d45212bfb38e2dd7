package electors

import (
	"sync"

	"github.com/go-logr/logr"
	"istio.io/istio/pkg/log"
	"k8s.io/klog/v2"
)

// quiet disables the logs of the other libraries. Hundreds of their candidates lose their leases on purpose.
var quiet = sync.OnceFunc(func() {
	klog.SetLogger(logr.Discard())
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel)
	}
})
