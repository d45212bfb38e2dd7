package node

import (
	"cmp"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
)

// Options describe a node.
type Options struct {
	// Config is the client configuration. It needs admin permissions.
	Config *rest.Config
	// Dir is the absolute path of the folder for files and logs of Pods. It is created if needed, and remains.
	Dir string
	// Images maps images to the absolute paths of programs. Such a path is also an image.
	Images map[string]string
	// Name is the name of the Node. Default: "incumbent".
	Name string
	// TokenRefresh is the age at which the token of a Pod is replaced. Its lifetime is an hour. Default: 48 minutes.
	TokenRefresh time.Duration
	// LoadBalancer makes the node the load balancer of the cluster: each Service of type LoadBalancer gets a loopback address, where
	// the node forwards TCP connections to the ready Pods of this node.
	LoadBalancer bool
	// Logger logs events of Pods. Optional.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "incumbent")
	o.TokenRefresh = cmp.Or(o.TokenRefresh, cluster.TokenLifetime*4/5)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}
