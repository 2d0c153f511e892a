package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

// No error about a URL quotes any part of it, since the mistyped part may be a password.

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
}

// parseOptions parses a URL, whose scheme no longer has +sentinel or +cluster, with a function of
// go-redis. It parses the TLS parameters itself, because go-redis does not know them. It refuses
// URLs in which go-redis would see a different server or password than the user meant.
func parseOptions[T any](text string, parse func(string) (*T, error)) (*T, *tls.Config, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, badURL("it cannot be parsed; " +
			"in user and password, percent-encode every character except letters and digits: @ is %%40")
	}
	q, err := url.ParseQuery(u.RawQuery)
	switch {
	case u.Opaque != "" || u.Scheme != "unix" && !strings.Contains(text, "://"):
		return nil, nil, badURL("want // and the host after the scheme")
	case strings.Contains(text, "#"):
		return nil, nil, badURL("write # as %%23")
	case err != nil:
		return nil, nil, badURL("the text after the ? is not a list of parameters")
	case !slices.Contains([]string{"", "0", "false", "1", "true"}, q.Get("skip_verify")):
		return nil, nil, badURL("want true or false for skip_verify")
	case u.Scheme != "rediss" && (q.Get("tls_ca")+q.Get("tls_cert")+q.Get("tls_key") != "" || unverified(q)):
		return nil, nil, badURL("tls_ca, tls_cert, tls_key and skip_verify are for rediss://, rediss+sentinel:// and rediss+cluster://")
	}
	forRedis := u.Query()
	for _, parameter := range []string{"tls_ca", "tls_cert", "tls_key", "skip_verify"} {
		forRedis.Del(parameter) // go-redis refuses unknown parameters
	}
	u.RawQuery = forRedis.Encode()
	o, err := parse(u.String())
	if err != nil {
		return nil, nil, redact(err)
	}
	tlsOptions, err := tlsConfig(u, q)
	return o, tlsOptions, err
}

// unverified reports whether the parameters of a URL turn off the check of the server's
// certificate.
func unverified(q url.Values) bool {
	return q.Get("skip_verify") == "1" || q.Get("skip_verify") == "true"
}

// tlsConfig returns the TLS configuration for a URL, or nil if it does not use TLS.
func tlsConfig(u *url.URL, q url.Values) (*tls.Config, error) {
	if u.Scheme != "rediss" {
		return nil, nil
	}
	c := &tls.Config{ServerName: cmp.Or(u.Hostname(), "localhost"), MinVersion: tls.VersionTLS12, InsecureSkipVerify: unverified(q)}
	if ca := q.Get("tls_ca"); ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fileError("tls_ca", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, badURL("tls_ca: the file holds no PEM certificate")
		}
	}
	cert, key := q.Get("tls_cert"), q.Get("tls_key")
	if cert == "" && key == "" {
		return c, nil
	}
	if cert == "" || key == "" {
		return nil, badURL("tls_cert and tls_key are both needed: one of them is missing")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fileError("tls_cert and tls_key", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// fileError returns an error about a file. It leaves out the file's name, which is part of the URL.
func fileError(parameter string, err error) error {
	if path, is := errors.AsType[*fs.PathError](err); is {
		return badURL("%s: a file cannot be read: %v", parameter, path.Err)
	}
	return badURL("%s: %v", parameter, err)
}

// Warnings returns warnings about a valid URL, such as that a certificate is not checked.
func Warnings(text string) []string {
	u, err := url.Parse(text)
	if err != nil || !strings.HasPrefix(u.Scheme, "rediss") || !unverified(u.Query()) {
		return nil
	}
	return []string{"skip_verify: the server's certificate is not checked, so anyone between you and the server can read and change everything; " +
		"set tls_ca to its CA"}
}

// safeErrors matches go-redis' errors about a URL that quote no part of it.
var safeErrors = regexp.MustCompile(`^redis: (invalid [a-z_]+ (?:number|duration|boolean)|empty unix socket path|invalid database number)`)

// redact returns the part of go-redis' error about a URL that quotes nothing of the URL, or a
// general error if it may quote some of it.
func redact(err error) error {
	if words := safeErrors.FindStringSubmatch(err.Error()); words != nil {
		return badURL("%s", words[1])
	}
	return badURL("it is not the URL of a Redis server, or has a parameter that go-redis does not know; " +
		"want a host, a port and a database number")
}
