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
)

// New makes the self-signed certificate of a CA, as PEM. Each is another one.
func New() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the CA's key: %w", err)
	}
	der, err := sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, key)
	if err != nil {
		return nil, fmt.Errorf("signing the CA's certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// CA is New for tests.
func CA(t testing.TB) []byte {
	t.Helper()
	certificate, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// KeyPair is a self-signed certificate and its key for tests, as PEM.
func KeyPair(t testing.TB) (certificate, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := sign(&x509.Certificate{}, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
}

// sign completes a template for a certificate that never ends.
func sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Unix(1<<32, 0)
	template.Subject = pkix.Name{Organization: []string{"incumbent tests"}}
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
}
