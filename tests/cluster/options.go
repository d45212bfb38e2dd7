package cluster

import (
	"fmt"
	"time"
)

// Options describe a cluster. The zero value has controllers and no audit log.
type Options struct {
	// External is the path of a kubeconfig. If set, that cluster is used and the other fields are ignored.
	External string
	// Assets is the folder of the programs. Default: KUBEBUILDER_ASSETS, else the folder of the running program, else
	// bin of the repository.
	Assets string
	// WithoutControllers starts no controller manager. The start is a second faster.
	WithoutControllers bool
	// Services starts the controller of EndpointSlices. It needs node.Options.PodNetwork.
	Services bool
	// Audit writes each completed request to AuditLog.
	Audit bool
	// AuditPolicy is the audit policy as YAML. Default: the metadata of every request.
	AuditPolicy string
	// APIServerArgs are additional arguments of the API server, such as "--feature-gates=…". They override the others.
	APIServerArgs []string
	// EtcdArgs are additional arguments of etcd, such as "--quota-backend-bytes=…".
	EtcdArgs []string
	// StartTimeout limits Start. Default: a minute.
	StartTimeout time.Duration
}

// withDefaults replaces empty fields.
func (o Options) withDefaults() Options {
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.AuditPolicy == "" {
		o.AuditPolicy = metadataPolicy
	}
	return o
}

// validate rejects invalid options.
func (o Options) validate() error {
	if o.StartTimeout < 0 {
		return fmt.Errorf("cluster options: StartTimeout %v is negative", o.StartTimeout)
	}
	return nil
}

// metadataPolicy logs the metadata of each request.
const metadataPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
