package gatewaystatus

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// Bounds of the files of a key pair, because a check blocks the events of all Secrets. A key of 8,192 bits, the largest that Envoy
// accepts, has 6 KB.
const (
	maxPrivateKey  = 1 << 13
	maxCertificate = 1 << 18
)

// problemKey is the key under which the cache stores the problem of a Secret. The key pair is dropped.
const problemKey = "problem"

// checkedSecret returns a Secret without its data and with their problem. It returns a checked Secret
// unchanged, because an informer can transform an object twice.
func checkedSecret(secret *corev1.Secret) *corev1.Secret {
	if _, done := secret.StringData[problemKey]; done { // the API server never sends this field
		return secret
	}
	checked := &corev1.Secret{ObjectMeta: meta(secret.ObjectMeta), Type: secret.Type, StringData: map[string]string{problemKey: ""}}
	if p := keyPairProblem(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); p != nil {
		checked.StringData[problemKey] = p.Message
	}
	return checked
}

// keyPairProblem returns a problem with the files of a key pair, or nil.
func keyPairProblem(certificate, key []byte) *problem {
	invalid := func(format string, args ...any) *problem {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, format, args...)
	}
	switch {
	case len(certificate) > maxCertificate:
		return invalid("%s has more than %d bytes", corev1.TLSCertKey, maxCertificate)
	case len(key) > maxPrivateKey:
		return invalid("%s has more than %d bytes", corev1.TLSPrivateKeyKey, maxPrivateKey)
	case incomplete(key):
		return invalid("%s must have two primes, their exponents and their coefficient", corev1.TLSPrivateKeyKey)
	}
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		return invalid("%s and %s are not a key pair: %v", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return nil
}

// incomplete reports whether a key is an RSA key whose check would compute missing values. The time for that grows with the cube of
// the size, and is seconds for a prime that fills the file.
func incomplete(key []byte) bool {
	var block *pem.Block
	for { // the block that X509KeyPair uses
		if block, key = pem.Decode(key); block == nil {
			return false
		}
		if block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY") {
			break
		}
	}
	der := block.Bytes
	var pkcs8 struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}
	if _, err := asn1.Unmarshal(der, &pkcs8); err == nil {
		der = pkcs8.Key
	}
	var rsa struct {
		Version                           int
		Modulus                           *big.Int
		PublicExponent                    int
		PrivateExponent, Prime1, Prime2   *big.Int
		Exponent1, Exponent2, Coefficient *big.Int      `asn1:"optional"`
		OtherPrimes                       asn1.RawValue `asn1:"optional"`
	}
	_, err := asn1.Unmarshal(der, &rsa)
	return err == nil && (rsa.Coefficient == nil || len(rsa.OtherPrimes.FullBytes) > 0)
}
