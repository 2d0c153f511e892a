package connect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

// TestErrorsQuoteNoURL checks that no error about a URL quotes a part that may be a password. In
// these URLs, every such part contains the word hush.
func TestErrorsQuoteNoURL(t *testing.T) {
	for _, url := range []string{
		"hush@host", "hush@host:6379", "hush:hush@host:6379", "hush", "hush:", "hush://x", ":hush@host", "//u:hush@host",
		"redis:hush@host:6379", "redis:/hush@host", "redis:u:hush@host", "redis//u:hush@host:1", "redis:hush",
		"redis://u:hu sh@host", "redis://u:hush@ho st", "redis://u:hush@[::1/", "redis://u:hush/hush@host:1", "redis://u:hush#x@host:1", "redis://u:hush?hush@host:1",
		"redis://u:%hush@host:1", "redis://u:hush@host:hush", "redis://u:hush\x00@host", "redis://u:hush@host/hush", "redis://h/hush/hush", "redis://h/0?hush=1",
		"redis://h/0?password=hush", "redis://h?read_timeout=hush", "redis://h?pool_size=hush", "redis://h?pool_fifo=hush", "redis://h?db=hush", "redis://h?skip_verify=hush",
		"redis://h?%hush", "redis://:1#hush@h:1", "redis://h?tls_ca=hush", "rediss://h?tls_ca=/hush", "rediss://h?tls_cert=/hush", "rediss://h?tls_key=/hush", "rediss://h?tls_key=/hush&tls_cert=hush",
		"unix://u:hush@", "unix://u:hush@/x?hush=1", "redis+sentinel://u:hush@h", "redis+sentinel://u:hush@h/hush?master_name=m", "redis+sentinel://h?master_name=m&addr=hush",
		"redis+cluster://u:hush@h?hush=1", "redis+cluster://h?addr=hush", "rediss+cluster://h?tls_ca=/hush", "redis+hush://h", "rediss+hush://h",
	} {
		e, err := Open(context.Background(), url, store.Cache{})
		if err == nil {
			e.Close()
			t.Errorf("%q was opened, want an error", url)
			continue
		}
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err)} {
			if !errors.Is(err, ErrURL) || strings.Contains(text, "hush") {
				t.Errorf("%q: got %s, want an ErrURL that does not contain hush", url, text)
			}
		}
	}
}

func TestFile(t *testing.T) {
	for url, want := range map[string]string{
		"file:a.jsonl": "a.jsonl", "file:/d/a b": "/d/a b", "file:///d/a%20b": "/d/a b", "file:./a?b": "./a?b",
		"file:": "", "file:///%zz": "", "memory:": "", "redis://h/0": "", "a.jsonl": "",
	} {
		if got := File(url); got != want {
			t.Errorf("File(%q) = %q, want %q", url, got, want)
		}
	}
}

// TestCertificateOrKeyMissing checks that a certificate without its key, or a key without its
// certificate, has an error of its own, and not that of an unreadable file.
func TestCertificateOrKeyMissing(t *testing.T) {
	for _, query := range []string{"tls_cert=me.crt", "tls_key=me.key", "tls_cert=me.crt&tls_key="} {
		_, err := Open(context.Background(), "rediss://h?"+query, store.Cache{})
		if want := "bad store URL: tls_cert and tls_key are both needed: one of them is missing"; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", query, err, want)
		}
	}
}

// A pki holds the files of a CA and of the certificates of a server at 127.0.0.1 and of a client.
type pki struct{ ca, serverCert, serverKey, clientCert, clientKey string }

func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootKey := newKey(t)
	p := pki{ca: filepath.Join(dir, "ca.crt")}
	sign := func(name string, serial int64, c *x509.Certificate, key *ecdsa.PrivateKey) (cert, keyFile string) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		if c.SerialNumber == nil {
			c.SerialNumber, c.Subject = big.NewInt(serial), pkix.Name{CommonName: name}
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		}
		der, err := x509.CreateCertificate(rand.Reader, c, root, &key.PublicKey, rootKey)
		if err != nil {
			t.Fatal(err)
		}
		keyDER, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		cert, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
		for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return cert, keyFile
	}
	sign("ca", 1, root, rootKey)
	p.serverCert, p.serverKey = sign("server", 2, &x509.Certificate{}, newKey(t))
	p.clientCert, p.clientKey = sign("client", 3, &x509.Certificate{}, newKey(t))
	return p
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestTLS opens a real server that requires client certificates, as a single server and as a
// cluster of one. Only a URL that names the server's CA or turns verification off, and that has a
// client certificate of that CA, may work. Only one that turns verification off may cause a
// warning.
func TestTLS(t *testing.T) {
	p, other := newPKI(t), newPKI(t)
	for _, kind := range []string{"rediss", "rediss+cluster"} {
		opts := []redistest.Option{redistest.TLS(p.serverCert, p.serverKey, p.ca)}
		if kind == "rediss+cluster" {
			opts = append(opts, redistest.SingleNodeCluster)
		}
		server := redistest.Start(t, opts...)
		if kind == "rediss+cluster" {
			server.TakeAllSlots()
		}
		url := kind + "://" + server.Addr() + "?max_retries=-1&"
		for _, tt := range []struct {
			name, query string
			opens       bool
		}{
			{"no parameters", "", false},
			{"only the CA", "tls_ca=" + p.ca, false},
			{"CA and client certificate", "tls_ca=" + p.ca + "&tls_cert=" + p.clientCert + "&tls_key=" + p.clientKey, true},
			{"another CA", "tls_ca=" + other.ca + "&tls_cert=" + p.clientCert + "&tls_key=" + p.clientKey, false},
			{"no CA", "tls_cert=" + p.clientCert + "&tls_key=" + p.clientKey, false},
			{"a certificate of another CA", "tls_ca=" + p.ca + "&tls_cert=" + other.clientCert + "&tls_key=" + other.clientKey, false},
			{"unverified", "skip_verify=true&tls_cert=" + p.clientCert + "&tls_key=" + p.clientKey, true},
			{"verified", "skip_verify=false&tls_cert=" + p.clientCert + "&tls_key=" + p.clientKey, false},
		} {
			e, err := Open(t.Context(), url+tt.query, store.Cache{})
			if err != nil {
				t.Fatalf("%s, %s: %v", kind, tt.name, err)
			}
			if err = e.Ping(t.Context()); (err == nil) != tt.opens {
				t.Errorf("%s, %s: got %v, want success: %v", kind, tt.name, err, tt.opens)
			}
			e.Close()
			if warned := len(Warnings(url+tt.query)) > 0; warned != (tt.name == "unverified") {
				t.Errorf("%s, %s: got a warning: %v; want %v", kind, tt.name, warned, !warned)
			}
		}
	}
}

// TestTLSOptions checks that the URLs of a server, of Sentinels and of a cluster give the same TLS
// options.
func TestTLSOptions(t *testing.T) {
	p := newPKI(t)
	query := "skip_verify=1&tls_ca=" + p.ca + "&tls_cert=" + p.clientCert + "&tls_key=" + p.clientKey
	server, serverTLS, err := parseOptions("rediss://h/3?"+query, redis.ParseURL)
	if err != nil {
		t.Fatal(err)
	}
	sentinel, sentinelTLS, err := parseOptions("rediss://h?master_name=m&addr=h2:1&"+query, redis.ParseFailoverURL)
	if err != nil {
		t.Fatal(err)
	}
	cluster, clusterTLS, err := parseOptions("rediss://h?addr=h2:1&"+query, redis.ParseClusterURL)
	if err != nil {
		t.Fatal(err)
	}
	if server.DB != 3 || sentinel.MasterName != "m" || len(cluster.Addrs) != 2 {
		t.Errorf("got database %d, master %q and addresses %q; want 3, m and two addresses", server.DB, sentinel.MasterName, cluster.Addrs)
	}
	for i, c := range []*tls.Config{serverTLS, sentinelTLS, clusterTLS} {
		if c == nil || !c.InsecureSkipVerify || c.RootCAs == nil || len(c.Certificates) != 1 || c.MinVersion < tls.VersionTLS12 || c.ServerName != "h" {
			t.Errorf("configuration %d: got %+v, want the CA, one certificate, no verification, TLS 1.2 or later and server name h", i, c)
		}
	}
	_, bare, err := parseOptions("rediss://h", redis.ParseURL)
	if err != nil || bare.InsecureSkipVerify || bare.RootCAs != nil {
		t.Errorf("without parameters: got %+v, %v; want verification with the CAs of the system", bare, err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := parseOptions("rediss://h?tls_ca="+empty, redis.ParseURL); err == nil {
		t.Error("a CA file without a certificate is accepted")
	}
}
