package electors

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	istiokube "istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/log"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/witness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// Process holds what the candidates of one process share. All of them use one library.
type Process struct {
	Library Library
	Counter

	logger  *slog.Logger // of incumbent; the other libraries do not log
	ours    kube.Client
	watcher revisions.DefaultWatcher
	watch   func() // runs watcher
	witness k8sleaderelection.Witness
	istio   istiokube.Client
	goes    kubernetes.Interface

	stop    chan struct{}
	running sync.WaitGroup
}

// agents are the user agents of each library. Readers of a Lease use managedFields to decide whose key it is.
var agents = map[Library]string{
	Incumbent: "pilot/v0 (linux/amd64) peers", Istio: "pilot-discovery/1.31 (linux/amd64) peers", ClientGo: "controller/v0 (linux/amd64) peers",
}

// NewProcess creates the clients of a process with the permissions of base. logger receives the logs of incumbent.
func NewProcess(library Library, base *rest.Config, logger *slog.Logger) (*Process, error) {
	quiet()
	p := &Process{Library: library, logger: logger, stop: make(chan struct{})}
	config := Separate(base)
	config.Wrap(p.Wrap)
	config.UserAgent = agents[library]
	var err error
	switch library {
	case Incumbent:
		err = p.connectOurs(config)
	case Istio:
		p.istio, err = istiokube.NewClient(istiokube.NewClientConfigForRestConfig(config), "peers")
	case ClientGo:
		p.goes, err = kubernetes.NewForConfig(Protobuf(config))
	}
	if err != nil {
		return nil, fmt.Errorf("create clients of %v: %w", library, err)
	}
	return p, nil
}

// Separate returns a copy of a configuration whose clients have their own connections, without a rate limit.
func Separate(base *rest.Config) *rest.Config {
	config := rest.CopyConfig(base)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // the limits of client-go
	return config
}

// Protobuf sets the content type of Kubernetes and of incumbent's clients.
func Protobuf(config *rest.Config) *rest.Config {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	return config
}

// connectOurs creates the client and the default watcher of a process.
func (p *Process) connectOurs(config *rest.Config) error {
	var err error
	if p.ours, err = kube.NewClient(config); err != nil {
		return err
	}
	parent, err := witness.FromParent()
	if err != nil {
		return err
	}
	p.witness = parent.For("", func() bool { return true }) // a supervised process has a fence
	p.watcher = revisions.NewDefault(p.ours, revisions.Config{Logger: p.logger})
	p.watch = sync.OnceFunc(func() { p.running.Go(func() { p.watcher.Run(p.stop) }) })
	return nil
}

// Candidate returns a candidate that does not campaign yet.
func (p *Process) Candidate(spec Spec) (*Candidate, error) {
	c := &Candidate{Spec: spec, Library: p.Library}
	var err error
	switch p.Library {
	case Incumbent:
		c.elector, err = p.newOurs(c)
	case Istio:
		c.elector, err = p.newIstio(c)
	case ClientGo:
		c.elector, err = p.newClientGo(c)
	default:
		err = errors.New("unknown library")
	}
	if err != nil {
		return nil, fmt.Errorf("candidate %s of %v: %w", spec.Identity, p.Library, err)
	}
	return c, nil
}

// Close releases the shared objects, after all candidates have stopped.
func (p *Process) Close() {
	close(p.stop)
	p.running.Wait()
	switch p.Library {
	case Incumbent:
		kube.CloseIdleConnections(p.ours)
	case Istio:
		p.istio.Shutdown()
		closeIdle(p.istio.Kube())
	case ClientGo:
		closeIdle(p.goes)
	}
}

func closeIdle(client kubernetes.Interface) {
	utilnet.CloseIdleConnectionsFor(client.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport)
}

// quiet disables the logs of the other libraries. Hundreds of their candidates lose their leases on purpose.
var quiet = sync.OnceFunc(func() {
	klog.SetLogger(logr.Discard())
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel)
	}
})
