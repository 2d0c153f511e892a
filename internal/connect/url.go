package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// No error about a URL quotes any of it: what was mistyped may be a password.

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
}

// A secured URL is one of a server with what its connections are secured by, which go-redis does not read.
type secured struct {
	text          string // what go-redis reads
	ca, cert, key string // files in PEM
	unverified    bool
}

// readURL takes a URL apart. Where go-redis would understand another server or another password than was
// meant, it is refused.
func readURL(text string) (secured, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return secured{}, badURL("it cannot be taken apart; in user and password, other characters than letters and digits are written as %%40 (this one is @)")
	case u.Opaque != "" || u.Scheme != "unix" && !strings.Contains(text, "://"):
		return secured{}, badURL("after the scheme come // and the host")
	case strings.Contains(text, "#"):
		return secured{}, badURL("a # in it is written as %%23")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return secured{}, badURL("what follows the ? is no list of parameters")
	}
	s := secured{text: text, ca: q.Get("tls_ca"), cert: q.Get("tls_cert"), key: q.Get("tls_key")}
	switch q.Get("skip_verify") {
	case "", "0", "false":
	case "1", "true":
		s.unverified = true
	default:
		return secured{}, badURL("skip_verify is true or false")
	}
	had := len(q)
	for _, name := range []string{"tls_ca", "tls_cert", "tls_key", "skip_verify"} {
		q.Del(name)
	}
	if len(q) < had { // go-redis refuses parameters that it does not know
		u.RawQuery = q.Encode()
		s.text = u.String()
	}
	if (s.ca+s.cert+s.key != "" || s.unverified) && u.Scheme != "rediss" {
		return secured{}, badURL("tls_ca, tls_cert, tls_key and skip_verify are for rediss://, rediss+sentinel:// and rediss+cluster://")
	}
	return s, nil
}

// apply makes go-redis' configuration of TLS what the URL says; nil is for connections without TLS.
func (s secured) apply(c *tls.Config) error {
	if c == nil {
		return nil
	}
	c.MinVersion = tls.VersionTLS12
	c.InsecureSkipVerify = s.unverified
	if s.ca != "" {
		text, err := os.ReadFile(s.ca)
		if err != nil {
			return badFile("tls_ca", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return badURL("tls_ca: there is no certificate in PEM in it")
		}
	}
	if s.cert == "" && s.key == "" {
		return nil
	}
	if s.cert == "" || s.key == "" {
		return badURL("tls_cert and tls_key are both needed: one of them is missing")
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return badFile("tls_cert and tls_key", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}

// badFile is the error for a file, without its name, which the URL holds.
func badFile(parameter string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return badURL("%s: a file cannot be read: %v", parameter, path.Err)
	}
	return badURL("%s: %v", parameter, err)
}

// Warnings are what is to be said about a URL that opens a store.
func Warnings(text string) []string {
	scheme, rest, _ := strings.Cut(text, ":")
	base, _, _ := strings.Cut(scheme, "+")
	if base != "rediss" {
		return nil
	}
	if s, err := readURL(base + ":" + rest); err == nil && s.unverified {
		return []string{"skip_verify: the server's certificate is not checked, so that anyone in between can read and change everything; name its CA with tls_ca"}
	}
	return nil
}

// refused are the words of go-redis about a URL that hold nothing of it.
var refused = regexp.MustCompile(`^redis: (invalid [a-z_]+ (?:number|duration|boolean)|empty unix socket path|invalid database number)`)

// hidden is an error of go-redis about a URL, without what it quotes.
func hidden(err error) error {
	if words := refused.FindStringSubmatch(err.Error()); words != nil {
		return badURL("%s", words[1])
	}
	return badURL("it is no URL of a Redis server, or has a parameter that go-redis does not have; want a host, a port and the number of a database")
}
