package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// The validity is long enough for any test.
var (
	validFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	validTo   = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Pair is a certificate and its key as PEM.
type Pair struct{ Cert, Key []byte }

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	// PEM is Cert as PEM.
	PEM []byte
	key *ecdsa.PrivateKey
}

// NewAuthority returns a new CA with that common name.
func NewAuthority(name string) (*Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, key, err := sign(template, nil)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate of %s: %w", name, err)
	}
	return &Authority{Cert: cert, PEM: encode("CERTIFICATE", der), key: key}, nil
}

// Sign completes and signs a template.
func (a *Authority) Sign(template *x509.Certificate) (Pair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, key, err := sign(template, a)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key of %s: %w", template.Subject.CommonName, err)
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("EC PRIVATE KEY", private)}, nil
}

// sign creates a key and its certificate. If by is nil, the certificate is self-signed.
func sign(template *x509.Certificate, by *Authority) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of %s: %w", template.Subject.CommonName, err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("generate serial number: %w", err)
	}
	template.NotBefore, template.NotAfter = validFrom, validTo
	if by == nil {
		by = &Authority{Cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return der, key, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// CA returns the certificate of a new CA.
func CA(t testing.TB) []byte {
	t.Helper()
	return authority(t).PEM
}

// KeyPair returns a certificate of a new CA and its key.
func KeyPair(t testing.TB) (certificate, private []byte) {
	t.Helper()
	pair, err := authority(t).Sign(&x509.Certificate{})
	harness.Must(t, err)
	return pair.Cert, pair.Key
}

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority("incumbent tests")
	harness.Must(t, err)
	return a
}
