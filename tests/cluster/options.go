package cluster

import (
	"fmt"
	"time"
)

// Options say which cluster to start. The zero value is one with controllers and
// without an audit log.
type Options struct {
	// External is the path of a kubeconfig. When set, that cluster is used as it is and
	// nothing is started; the other fields are ignored.
	External string
	// Assets is the folder of the programs. Empty means KUBEBUILDER_ASSETS, else the folder
	// of the running program if they are there, else bin of the repository.
	Assets string
	// WithoutControllers leaves out the controller manager: the cluster is ready a
	// second earlier, and Deployments, garbage collection and the deletion of namespaces
	// do nothing.
	WithoutControllers bool
	// Services has EndpointSlices made for Services. The addresses of Pods must not be loopback ones
	// then: see node.Options.PodNetwork.
	Services bool
	// Audit writes each finished request to AuditLog.
	Audit bool
	// AuditPolicy is the audit policy, as YAML; empty means the metadata of every
	// request.
	AuditPolicy string
	// APIServerArgs are further arguments of the API server, such as
	// "--feature-gates=…". They come last, and so win.
	APIServerArgs []string
	// EtcdArgs are further arguments of etcd, such as "--quota-backend-bytes=…".
	EtcdArgs []string
	// StartTimeout bounds Start; zero means a minute.
	StartTimeout time.Duration
}

// withDefaults fills in what is empty.
func (o Options) withDefaults() Options {
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.AuditPolicy == "" {
		o.AuditPolicy = metadataPolicy
	}
	return o
}

// validate reports what cannot be meant.
func (o Options) validate() error {
	if o.StartTimeout < 0 {
		return fmt.Errorf("cluster options: StartTimeout %v is negative", o.StartTimeout)
	}
	return nil
}

// metadataPolicy has the API server note who asked for what, without bodies.
const metadataPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
