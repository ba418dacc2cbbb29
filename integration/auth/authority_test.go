package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// authority is a certificate authority of a test's own.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         string
}

func newAuthority(name string) *authority {
	a := &authority{key: newKey()}
	template := validNow(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der := must(x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key))
	a.certificate, a.pem = must(x509.ParseCertificate(der)), pemOf("CERTIFICATE", der)
	return a
}

// issue returns a certificate for a server or a user of this name, and its key.
func (a *authority) issue(name string) (certificate, key string) {
	template, own := validNow(name), newKey()
	template.DNSNames = []string{name}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der := must(x509.CreateCertificate(rand.Reader, template, a.certificate, own.Public(), a.key))
	return pemOf("CERTIFICATE", der), pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(own)))
}

// client is the configuration of a client of this name that trusts a; without
// a certificate if the name is empty.
func (a *authority) client(name string) *tls.Config {
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AddCert(a.certificate)
	if name != "" {
		certificate, key := a.issue(name)
		cfg.Certificates = []tls.Certificate{must(tls.X509KeyPair([]byte(certificate), []byte(key)))}
	}
	return cfg
}

func validNow(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// must is for what fails only if the test itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
