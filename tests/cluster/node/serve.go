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
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/certs"
)

const (
	// kubeletPort is the port at which API servers contact a node.
	kubeletPort = 10250
	// headerTimeout limits the wait for the header of a request.
	headerTimeout = 10 * time.Second
)

// endpoint serves logs, as a kubelet does.
type endpoint struct {
	node     *Node
	server   *http.Server
	listener net.Listener
	// under counts open requests, for which Server.Close does not wait.
	under sync.WaitGroup
	ended chan struct{}
}

// serve listens on the address of the node until close. The end of ctx ends the requests.
func (n *Node) serve(ctx context.Context, address string) (*endpoint, error) {
	config, err := n.servingConfig(address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(kubeletPort)))
	if err != nil {
		return nil, fmt.Errorf("serving logs: %w", err)
	}
	e := &endpoint{node: n, listener: tls.NewListener(listener, config), ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", e.logs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "a process node serves logs, and nothing at "+r.URL.Path, http.StatusNotFound)
	})
	e.server = &http.Server{
		Handler: e.counted(mux), ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// Ignore broken connections.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(e.ended)
		if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			n.options.Logger.Error("log server ended", "err", err)
		}
	}()
	return e, nil
}

// close returns after all requests have ended.
func (e *endpoint) close() error {
	err := e.server.Close()
	<-e.ended
	e.under.Wait()
	return err
}

// counted authorizes requests and counts them.
func (e *endpoint) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.under.Add(1)
		defer e.under.Done()
		if err := e.node.authorize(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorize asks the API server whether the client certificate may get nodes/proxy, as a kubelet does.
func (n *Node) authorize(r *http.Request) error {
	subject := r.TLS.PeerCertificates[0].Subject // the handshake requires a certificate
	review, err := n.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: subject.CommonName, Groups: subject.Organization,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "get", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: n.options.Name,
			},
		},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("authorize %s: %w", subject.CommonName, err)
	case !review.Status.Allowed:
		return fmt.Errorf("%s may not get nodes/proxy", subject.CommonName)
	}
	return nil
}

// servingConfig returns a TLS configuration with a self-signed certificate. It requires client certificates of the
// cluster's CA.
func (n *Node) servingConfig(address string) (*tls.Config, error) {
	cluster, err := rest.TLSConfigFor(n.options.Config)
	if err != nil {
		return nil, fmt.Errorf("get TLS configuration of cluster: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	if cluster != nil && cluster.RootCAs != nil {
		config.ClientCAs = cluster.RootCAs
	}
	certificate, err := ownCertificate(n.options.Name, address)
	config.Certificates = []tls.Certificate{certificate}
	return config, err
}

// ownCertificate returns a certificate of a new CA.
func ownCertificate(name, address string) (tls.Certificate, error) {
	authority, err := certs.NewAuthority(name)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := authority.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(address)},
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}
