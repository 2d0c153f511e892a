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

// No error about a URL quotes any part of it: what was mistyped may be a password.

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
}

// optionsOf parses a URL with one of go-redis' functions, and its TLS parameters, which go-redis
// does not know. It refuses URLs that go-redis would read as another server or another password
// than the user meant.
func optionsOf[T any](text string, parse func(string) (*T, error)) (*T, *tls.Config, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, badURL("it cannot be taken apart; " +
			"in user and password, other characters than letters and digits are written as %%40 (this one is @)")
	}
	q, err := url.ParseQuery(u.RawQuery)
	switch {
	case u.Opaque != "" || u.Scheme != "unix" && !strings.Contains(text, "://"):
		return nil, nil, badURL("after the scheme come // and the host")
	case strings.Contains(text, "#"):
		return nil, nil, badURL("a # in it is written as %%23")
	case err != nil:
		return nil, nil, badURL("what follows the ? is no list of parameters")
	case !slices.Contains([]string{"", "0", "false", "1", "true"}, q.Get("skip_verify")):
		return nil, nil, badURL("skip_verify is true or false")
	case u.Scheme != "rediss" && (q.Get("tls_ca")+q.Get("tls_cert")+q.Get("tls_key") != "" || unverified(q)):
		return nil, nil, badURL("tls_ca, tls_cert, tls_key and skip_verify are for rediss://, rediss+sentinel:// and rediss+cluster://")
	}
	theirs := u.Query()
	for _, ours := range []string{"tls_ca", "tls_cert", "tls_key", "skip_verify"} {
		theirs.Del(ours) // go-redis refuses unknown parameters
	}
	u.RawQuery = theirs.Encode()
	o, err := parse(u.String())
	if err != nil {
		return nil, nil, hidden(err)
	}
	secured, err := secure(u, q)
	return o, secured, err
}

// unverified reports whether the parameters of a URL turn off the check of the server's
// certificate.
func unverified(q url.Values) bool {
	return q.Get("skip_verify") == "1" || q.Get("skip_verify") == "true"
}

// secure returns the TLS configuration for a URL, or nil if it does not use TLS.
func secure(u *url.URL, q url.Values) (*tls.Config, error) {
	if u.Scheme != "rediss" {
		return nil, nil
	}
	c := &tls.Config{ServerName: cmp.Or(u.Hostname(), "localhost"), MinVersion: tls.VersionTLS12, InsecureSkipVerify: unverified(q)}
	if ca := q.Get("tls_ca"); ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, badFile("tls_ca", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, badURL("tls_ca: there is no certificate in PEM in it")
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
		return nil, badFile("tls_cert and tls_key", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// badFile returns the error for a file without the file's name, which is part of the URL.
func badFile(parameter string, err error) error {
	if path, is := errors.AsType[*fs.PathError](err); is {
		return badURL("%s: a file cannot be read: %v", parameter, path.Err)
	}
	return badURL("%s: %v", parameter, err)
}

// Warnings returns what to warn the user of about a valid URL.
func Warnings(text string) []string {
	u, err := url.Parse(text)
	if err != nil || !strings.HasPrefix(u.Scheme, "rediss") || !unverified(u.Query()) {
		return nil
	}
	return []string{"skip_verify: the server's certificate is not checked, so that anyone in between can read and change everything; " +
		"name its CA with tls_ca"}
}

// refused matches those of go-redis' errors about a URL that quote nothing of it.
var refused = regexp.MustCompile(`^redis: (invalid [a-z_]+ (?:number|duration|boolean)|empty unix socket path|invalid database number)`)

// hidden returns go-redis' error about a URL without the part that quotes it.
func hidden(err error) error {
	if words := refused.FindStringSubmatch(err.Error()); words != nil {
		return badURL("%s", words[1])
	}
	return badURL("it is no URL of a Redis server, or has a parameter that go-redis does not have; " +
		"want a host, a port and the number of a database")
}
