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

// The format asks for a validity; tests are done with certificates before it matters.
var (
	validFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	validTo   = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Pair is a certificate and its key, as PEM.
type Pair struct{ Cert, Key []byte }

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	// PEM is Cert, as those read it who trust this authority.
	PEM []byte
	key *ecdsa.PrivateKey
}

// NewAuthority makes one whose own certificate bears the name. Each is another one.
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
		return nil, fmt.Errorf("reading the certificate of %s: %w", name, err)
	}
	return &Authority{Cert: cert, PEM: encode("CERTIFICATE", der), key: key}, nil
}

// Sign completes a template, which says whom it is for and what, and signs it.
func (a *Authority) Sign(template *x509.Certificate) (Pair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, key, err := sign(template, a)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding the key of %s: %w", template.Subject.CommonName, err)
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("EC PRIVATE KEY", private)}, nil
}

// sign makes a key and its certificate, signed by an authority; nil: by itself.
func sign(template *x509.Certificate, by *Authority) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the key of %s: %w", template.Subject.CommonName, err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	template.NotBefore, template.NotAfter = validFrom, validTo
	if by == nil {
		by = &Authority{Cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return der, key, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// CA is the certificate of a new authority, for tests that sign nothing by it.
func CA(t testing.TB) []byte {
	t.Helper()
	return authority(t).PEM
}

// KeyPair is a certificate and its key, by an authority that nobody knows.
func KeyPair(t testing.TB) (certificate, private []byte) {
	t.Helper()
	pair, err := authority(t).Sign(&x509.Certificate{})
	if err != nil {
		t.Fatal(err)
	}
	return pair.Cert, pair.Key
}

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority("incumbent tests")
	if err != nil {
		t.Fatal(err)
	}
	return a
}
