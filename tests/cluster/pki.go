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

// authority signs the certificates of one cluster: the API server's and its clients'.
type authority struct{ *certs.Authority }

func newAuthority() (authority, error) {
	a, err := certs.NewAuthority("incumbent test cluster")
	return authority{a}, err
}

// server signs a certificate for serving on these addresses.
func (a authority) server(addresses []string) (certs.Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	return a.Sign(template)
}

// client signs a certificate that makes its bearer the user, in the groups.
func (a authority) client(user string, groups ...string) (certs.Pair, error) {
	return a.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// The files that the servers read, inside the cluster's folder.
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

// writeKeys puts what the servers need to know each other into the folder. The key that
// signs service account tokens is one for all API servers of a cluster.
func (a authority) writeKeys(folder string, addresses []string) error {
	serving, err := a.server(addresses)
	if err != nil {
		return err
	}
	kubelets, err := a.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	tokens, err := a.client("service account tokens") // of which the key alone is used
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		caFile: a.PEM, servingCert: serving.Cert, servingKey: serving.Key, tokenKey: tokens.Key,
		kubeletCert: kubelets.Cert, kubeletKey: kubelets.Key,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return fmt.Errorf("writing the cluster's keys: %w", err)
		}
	}
	return nil
}
