package cluster

import "cmp"

// Options describe a cluster. The zero value has controllers and no audit log.
type Options struct {
	// Module is a folder of the module that defines the version of the Gateway API. Default: the working directory.
	Module string
	// WithoutControllers starts no controller manager. The start is a second faster.
	WithoutControllers bool
	// Audit writes each completed request to AuditLog.
	Audit bool
	// AuditPolicy is the audit policy as YAML. Default: the metadata of every request.
	AuditPolicy string
	// APIServerArgs are additional arguments of the API server, such as "--feature-gates=…". They override the others.
	APIServerArgs []string
}

// withDefaults replaces empty fields.
func (o Options) withDefaults() Options {
	o.AuditPolicy = cmp.Or(o.AuditPolicy, metadataPolicy)
	return o
}

// metadataPolicy logs the metadata of each request.
const metadataPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
