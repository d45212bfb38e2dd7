package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/certs"
)

const (
	// kubeletPort is the port at which API servers contact a node.
	kubeletPort = 10250
	// headerTimeout limits the wait for the header of a request.
	headerTimeout = 10 * time.Second
)

// serve listens on the address of the node until the returned function is called. The end of ctx ends the requests.
func (n *Node) serve(ctx context.Context, address string) (stop func() error, err error) {
	config, err := n.servingConfig(address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(kubeletPort)))
	if err != nil {
		return nil, fmt.Errorf("serving logs: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.logs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "this local cluster serves only the logs of Pods, and not "+r.URL.Path+". For ports, use the address of the Pod: kubectl get pods -o wide", http.StatusNotFound)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// Ignore broken connections.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(tls.NewListener(listener, config)); !errors.Is(err, http.ErrServerClosed) {
			n.options.Logger.Error("log server ended", "err", err)
		}
	}()
	return func() error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), headerTimeout)
		defer cancel()
		err := server.Shutdown(bounded)
		if err != nil { // a client does not read its response
			err = server.Close()
		}
		<-ended
		return err
	}, nil
}

// servingConfig returns a TLS configuration with a certificate of a new CA. It requires client certificates of the
// cluster's CA.
func (n *Node) servingConfig(address string) (*tls.Config, error) {
	cluster, err := rest.TLSConfigFor(n.options.Config)
	if err != nil {
		return nil, fmt.Errorf("get TLS configuration of cluster: %w", err)
	}
	authority, err := certs.NewAuthority(n.options.Name)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + n.options.Name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(address)},
	})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: cluster.RootCAs,
	}, err
}
