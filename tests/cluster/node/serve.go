package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"

	"k8s.io/client-go/rest"
)

// kubeletPort is the port at which API servers contact a node.
const kubeletPort = 10250

// serve serves logs on the address of the node until the returned function is called. The end of ctx ends the requests. The server
// requires client certificates of the cluster's CA. API servers do not check its own certificate.
func (n *Node) serve(ctx context.Context) (stop func(), err error) {
	cluster, err := rest.TLSConfigFor(n.options.Config)
	if err != nil {
		return nil, fmt.Errorf("get TLS configuration of cluster: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.logs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "this local cluster serves only the logs of Pods, and not "+r.URL.Path+". For ports, use the address of the Pod: kubectl get pods -o wide", http.StatusNotFound)
	})
	server := httptest.NewUnstartedServer(mux)
	if err := server.Listener.Close(); err != nil {
		return nil, err
	}
	if server.Listener, err = net.Listen("tcp", net.JoinHostPort(n.address, strconv.Itoa(kubeletPort))); err != nil {
		return nil, fmt.Errorf("serving logs: %w", err)
	}
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // ignore broken connections
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: cluster.RootCAs}
	server.StartTLS()
	return func() {
		server.CloseClientConnections() // a client may not read its response
		server.Close()
	}, nil
}
