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

// optionsOf reads a URL by one of go-redis' functions, and what secures the connections, which go-redis does not read.
// Where go-redis would understand another server or another password than was meant, it is refused.
func optionsOf[T any](text string, parse func(string) (*T, error), config func(*T) *tls.Config) (*T, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, badURL("it cannot be taken apart; in user and password, other characters than letters and digits are written as %%40 (this one is @)")
	case u.Opaque != "" || u.Scheme != "unix" && !strings.Contains(text, "://"):
		return nil, badURL("after the scheme come // and the host")
	case strings.Contains(text, "#"):
		return nil, badURL("a # in it is written as %%23")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, badURL("what follows the ? is no list of parameters")
	}
	ours := url.Values{}
	for _, name := range []string{"tls_ca", "tls_cert", "tls_key", "skip_verify"} {
		if value, is := q[name]; is {
			ours[name] = value
			q.Del(name)
		}
	}
	if len(ours) > 0 { // go-redis refuses parameters that it does not know
		u.RawQuery = q.Encode()
		text = u.String()
	}
	switch ours.Get("skip_verify") {
	case "", "0", "false", "1", "true":
	default:
		return nil, badURL("skip_verify is true or false")
	}
	if (ours.Get("tls_ca")+ours.Get("tls_cert")+ours.Get("tls_key") != "" || unverified(ours)) && u.Scheme != "rediss" {
		return nil, badURL("tls_ca, tls_cert, tls_key and skip_verify are for rediss://, rediss+sentinel:// and rediss+cluster://")
	}
	o, err := parse(text)
	if err != nil {
		return nil, hidden(err)
	}
	if u.Scheme != "rediss" {
		return o, nil
	}
	return o, secure(config(o), ours)
}

// unverified reports whether the parameters of a URL leave the server's certificate unchecked.
func unverified(q url.Values) bool {
	return q.Get("skip_verify") == "1" || q.Get("skip_verify") == "true"
}

// secure makes go-redis' configuration of TLS what the parameters say.
func secure(c *tls.Config, q url.Values) error {
	c.MinVersion = tls.VersionTLS12
	c.InsecureSkipVerify = unverified(q)
	if ca := q.Get("tls_ca"); ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return badFile("tls_ca", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return badURL("tls_ca: there is no certificate in PEM in it")
		}
	}
	cert, key := q.Get("tls_cert"), q.Get("tls_key")
	if cert == "" && key == "" {
		return nil
	}
	if cert == "" || key == "" {
		return badURL("tls_cert and tls_key are both needed: one of them is missing")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
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
	u, err := url.Parse(text)
	if err != nil || !strings.HasPrefix(u.Scheme, "rediss") || !unverified(u.Query()) {
		return nil
	}
	return []string{"skip_verify: the server's certificate is not checked, so that anyone in between can read and change everything; name its CA with tls_ca"}
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
