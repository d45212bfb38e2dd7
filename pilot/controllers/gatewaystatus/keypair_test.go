package gatewaystatus

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestCheckedSecret(t *testing.T) {
	certificate, private := certs.KeyPair(t)
	data := map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: private}
	got := checkedSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cert", Annotations: map[string]string{"a": "b"}}, Data: data})
	if got.Name != "cert" || got.Annotations != nil || got.Data != nil || got.StringData[problemKey] != "" {
		t.Errorf("valid Secret: %v", got)
	}
	if again := checkedSecret(got); again.StringData[problemKey] != "" {
		t.Errorf("checked twice: %v", again)
	}
	data[corev1.TLSPrivateKeyKey] = []byte("Hello world")
	if got := checkedSecret(&corev1.Secret{Data: data}); got.Data != nil || got.StringData[problemKey] == "" {
		t.Errorf("invalid Secret: %v", got)
	}
}

// A large key would block the events of all Secrets for minutes.
func TestCheckedSecret_Bounds(t *testing.T) {
	certificate, private := certs.KeyPair(t)
	padded := func(content []byte, size int) []byte {
		return append(slices.Clone(content), bytes.Repeat([]byte("\n"), size-len(content))...)
	}
	for _, test := range []struct {
		certificate, private int
		problem              string
	}{
		{maxCertificate, maxPrivateKey, ""},
		{maxCertificate + 1, maxPrivateKey, "tls.crt has more than 262144 bytes"},
		{maxCertificate, maxPrivateKey + 1, "tls.key has more than 8192 bytes"},
	} {
		got := checkedSecret(&corev1.Secret{Data: map[string][]byte{
			corev1.TLSCertKey: padded(certificate, test.certificate), corev1.TLSPrivateKeyKey: padded(private, test.private),
		}}).StringData[problemKey]
		if got != test.problem {
			t.Errorf("%d and %d bytes: problem %q, want %q", test.certificate, test.private, got, test.problem)
		}
	}
	blocks := bytes.Repeat([]byte("-----BEGIN A-----\n-----END A-----\n"), 5000)
	if got := checkedSecret(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: blocks}}).StringData[problemKey]; got == "" || len(got) > 1024 {
		t.Errorf("the problem has %d bytes", len(got))
	}
}

// rsaFields are the fields of an RSA key, without optional ones.
type rsaFields struct {
	Version int
	N       *big.Int
	E       int
	D, P, Q *big.Int
}

// rsaKeyPair returns a certificate, its key, and the key of only the required fields.
func rsaKeyPair(t testing.TB) (certificate, complete, incomplete []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	harness.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	if certificate, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
		t.Fatal(err)
	}
	complete = x509.MarshalPKCS1PrivateKey(key)
	if incomplete, err = asn1.Marshal(rsaFields{0, key.N, key.E, key.D, key.Primes[0], key.Primes[1]}); err != nil {
		t.Fatal(err)
	}
	return certificate, complete, incomplete
}

// pkcs8 returns the key in that format.
func pkcs8(t testing.TB, key []byte) []byte {
	t.Helper()
	null := asn1.RawValue{FullBytes: []byte{5, 0}}
	der, err := asn1.Marshal(struct {
		Version   int
		Algorithm struct {
			OID asn1.ObjectIdentifier
			No  asn1.RawValue
		}
		Key []byte
	}{0, struct {
		OID asn1.ObjectIdentifier
		No  asn1.RawValue
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, null}, key})
	harness.Must(t, err)
	return der
}

// A check must not compute missing values of an RSA key, which takes seconds for a large prime.
func TestKeyPairProblem_RSA(t *testing.T) {
	certificate, complete, incomplete := rsaKeyPair(t)
	encoded := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	const missing = "tls.key must have two primes"
	for name, test := range map[string]struct{ key, problem string }{
		"PKCS 1":             {encoded("RSA PRIVATE KEY", complete), ""},
		"PKCS 8":             {encoded("PRIVATE KEY", pkcs8(t, complete)), ""},
		"other blocks first": {encoded("XPRIVATE KEY", incomplete) + encoded("EC PARAMETERS", incomplete) + encoded("RSA PRIVATE KEY", complete), ""},
		"incomplete PKCS 1":  {encoded("EC PARAMETERS", complete) + encoded("RSA PRIVATE KEY", incomplete), missing},
		"incomplete PKCS 8":  {encoded("PRIVATE KEY", pkcs8(t, incomplete)), missing},
		"no key":             {encoded("CERTIFICATE", complete), "not a key pair"},
		"not ASN.1":          {encoded("PRIVATE KEY", []byte("x")), "not a key pair"},
	} {
		problem := ""
		if p := keyPairProblem([]byte(encoded("CERTIFICATE", certificate)), []byte(test.key)); p != nil {
			problem = p.Message
		}
		if (problem == "") != (test.problem == "") || !strings.Contains(problem, test.problem) {
			t.Errorf("%s: problem %q, want %q", name, problem, test.problem)
		}
	}
}
