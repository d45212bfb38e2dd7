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
	// kubeletPort is where API servers expect a node to serve. The node's address is its own.
	kubeletPort = 10250
	// headerTimeout bounds the wait for a request's header.
	headerTimeout = 10 * time.Second
)

// endpoint is what of a kubelet's API a process node serves: logs.
type endpoint struct {
	node     *Node
	server   *http.Server
	listener net.Listener
	// under counts the requests under way, which Close of a server does not wait for.
	under sync.WaitGroup
	ended chan struct{}
}

// serve listens on the node's address until close. ctx ends requests.
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
		// What of a connection cannot be spoken with is not the node's affair.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(e.ended)
		if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			n.options.Logger.Error("the node serves no logs any more", "err", err)
		}
	}()
	return e, nil
}

// close returns when nothing is served any more.
func (e *endpoint) close() error {
	err := e.server.Close()
	<-e.ended
	e.under.Wait()
	return err
}

// counted lets those pass who may ask.
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

// authorize asks the API server, as a kubelet does, whether the bearer of the client certificate
// may have what the node serves.
func (n *Node) authorize(r *http.Request) error {
	subject := r.TLS.PeerCertificates[0].Subject // there is one: the handshake asks for it
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
		return fmt.Errorf("asking whether %s may: %w", subject.CommonName, err)
	case !review.Status.Allowed:
		return fmt.Errorf("%s may not get nodes/proxy", subject.CommonName)
	}
	return nil
}

// servingConfig has a certificate of the node's own, which API servers take unless they are told
// otherwise, and asks for one that the cluster's authority has signed.
func (n *Node) servingConfig(address string) (*tls.Config, error) {
	cluster, err := rest.TLSConfigFor(n.options.Config)
	if err != nil {
		return nil, fmt.Errorf("the cluster's TLS configuration: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	if cluster != nil && cluster.RootCAs != nil {
		config.ClientCAs = cluster.RootCAs
	}
	certificate, err := ownCertificate(n.options.Name, address)
	config.Certificates = []tls.Certificate{certificate}
	return config, err
}

// ownCertificate is by an authority that nobody knows.
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
