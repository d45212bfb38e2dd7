package cluster

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"incumbent.dev/incumbent/internal/testutil/certs"
)

// authority signs the certificates of one cluster.
type authority struct{ *certs.Authority }

func newAuthority() (authority, error) {
	a, err := certs.NewAuthority("incumbent test cluster")
	return authority{a}, err
}

// server signs a server certificate for an address.
func (a authority) server(address string) (certs.Pair, error) {
	return a.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(address)},
	})
}

// client signs a client certificate of the user and its groups.
func (a authority) client(user string, groups ...string) (certs.Pair, error) {
	return a.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// The key files in the folder of the cluster.
const (
	caFile         = "ca.crt"
	servingCert    = "apiserver.crt"
	servingKey     = "apiserver.key"
	tokenKey       = "service-account.key"
	kubeletCert    = "apiserver-kubelet-client.crt"
	kubeletKey     = "apiserver-kubelet-client.key"
	auditPolicy    = "audit-policy.yaml"
	adminConfig    = "admin.kubeconfig"
	managersConfig = "controller-manager.kubeconfig"
)

// writeKeys writes the keys of the servers.
func (a authority) writeKeys(folder, address string) error {
	serving, err := a.server(address)
	if err != nil {
		return err
	}
	kubelets, err := a.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	tokens, err := a.client("service account tokens") // only the key is used
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		caFile: a.PEM, servingCert: serving.Cert, servingKey: serving.Key, tokenKey: tokens.Key,
		kubeletCert: kubelets.Cert, kubeletKey: kubelets.Key,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return fmt.Errorf("write keys of cluster: %w", err)
		}
	}
	return nil
}
