package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

func TestCA(t *testing.T) {
	one, other := CA(t), CA(t)
	block, rest := pem.Decode(one)
	if block == nil || len(rest) > 0 || bytes.Equal(one, other) {
		t.Fatalf("%s and %s", one, other)
	}
	if cert, err := x509.ParseCertificate(block.Bytes); err != nil || !cert.IsCA {
		t.Errorf("%+v: %v", cert, err)
	}
}

func TestKeyPair(t *testing.T) {
	certificate, private := KeyPair(t)
	if _, err := tls.X509KeyPair(certificate, private); err != nil {
		t.Error(err)
	}
}
