package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The certificates live as long as a cluster, which is short; their validity is there
// because the format asks for one.
var (
	validFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	validTo   = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

// pair is a certificate and its key, as PEM.
type pair struct{ cert, key []byte }

// authority signs the certificates of one cluster: the API server's and its clients'.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's CA key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "incumbent test cluster"},
		NotBefore:             validFrom,
		NotAfter:              validTo,
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the cluster's CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	return &authority{cert: cert, key: key, pem: certPEM(der)}, nil
}

// server signs a certificate for serving on these addresses.
func (a *authority) server(addresses []string) (pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	return a.sign(template)
}

// client signs a certificate that makes its bearer the user, in the groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, fmt.Errorf("drawing a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = validFrom, validTo
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making the key of %s: %w", template.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := keyPEM(key)
	return pair{cert: certPEM(der), key: keyPEM}, err
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
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
func (a *authority) writeKeys(folder string, addresses []string) error {
	serving, err := a.server(addresses)
	if err != nil {
		return err
	}
	kubelets, err := a.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the key for service account tokens: %w", err)
	}
	tokensPEM, err := keyPEM(tokens)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		caFile: a.pem, servingCert: serving.cert, servingKey: serving.key, tokenKey: tokensPEM,
		kubeletCert: kubelets.cert, kubeletKey: kubelets.key,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return fmt.Errorf("writing the cluster's keys: %w", err)
		}
	}
	return nil
}
