package connection

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
)

// tlsFor returns the TLS configuration for a try at t, nil for none.
func tlsFor(t endpoint, cfg *tls.Config) (*tls.Config, error) {
	if t.uri.Scheme != "amqps" {
		return nil, nil
	}
	if cfg == nil {
		var err error
		if cfg, err = tlsFromFiles(t); err != nil {
			return nil, err
		}
	}
	cfg = cfg.Clone()
	cfg.ServerName = cmp.Or(t.uri.ServerName, cfg.ServerName, t.uri.Host)
	return cfg, nil
}

// tlsFromFiles reads the files anew for each try: certificates are renewed.
func tlsFromFiles(t endpoint) (*tls.Config, error) {
	cfg := new(tls.Config)
	ca, certificate := t.uri.CACertFile, t.uri.CertFile
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.nameOfParameter("cacertfile"), err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s holds no certificate in PEM", t.nameOfParameter("cacertfile"), ca)
		}
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, t.uri.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", t.nameOfParameter("certfile"), t.nameOfParameter("keyfile"), err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// tlsConn remembers the broker's alert. In TLS 1.3 a client certificate is
// refused after our side of the handshake, and the library then reports the first
// failed read or write.
type tlsConn struct {
	*tls.Conn
	alert atomic.Pointer[error]
}

func (s *tlsConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if isAlert(err) {
		s.alert.CompareAndSwap(nil, &err)
	}
	return n, err
}

// received returns the alert, or nil; also of a nil s.
func (s *tlsConn) received() error {
	if s == nil || s.alert.Load() == nil {
		return nil
	}
	return *s.alert.Load()
}

// isAlert reports whether err is an alert from the other side of TLS.
func isAlert(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

// explainTLS names the fault of the certificates, and a remedy.
func explainTLS(t endpoint, err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		record    tls.RecordHeaderError
	)
	// The places of a remedy: a field or the URL, and for a Config of FromEnv its variables.
	in := func(field string, variables ...string) string {
		if t.variables == nil {
			return field
		}
		for i := range variables {
			variables[i] = t.variables.prefix + "_" + variables[i]
		}
		return strings.Join(variables, " and ")
	}
	advice := ""
	switch {
	case errors.As(err, &authority):
		advice = "; put the CA that signed the broker's certificate into " + in("Config.TLS.RootCAs, or give its file as cacertfile in the URL", "CA_FILE")
	case errors.As(err, &name):
		advice = "; connect by a name that is in the broker's certificate, or give one as " + in("server_name_indication in the URL", "SERVER_NAME")
	case errors.As(err, &record):
		advice = "; " + t.rightPort()
	case isAlert(err):
		advice = "; the broker ended the handshake with this alert; if it asks for a client certificate that is signed by a CA it knows, put one into " +
			in("Config.TLS.Certificates, or give its files as certfile and keyfile in the URL", "CERT_FILE", "KEY_FILE")
	}
	return &refusal{text: fmt.Sprintf("%s: TLS: %v%s", t, err, advice), cause: err, sure: true}
}
