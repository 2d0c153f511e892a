package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/metrics"
)

// serveFlags holds the flags of serve.
type serveFlags struct {
	listen, cert, key, metrics, cookie string
	behindProxy, scim, console         bool
	operatorsFactor                    *bool // nil: as it was set last
	passkeyRP, consoleOrigin           string
	passkeyOrigins                     []string
	resetLink                          string
	userName, mapping                  string
	tags                               map[string]string
	proxies                            []netip.Prefix
}

func serveCommand(s *session) *cobra.Command {
	var v serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve accounts over HTTP, for programs in any language",
		Long: `Serve accounts over HTTP to programs with an API key ('userdb apikey create'). /openapi.json
describes everything, and /docs shows it to people. Without a certificate it listens on this machine
only, unless a proxy in front of it provides TLS (--behind-proxy).

Any number of processes may serve one Redis or cluster, but only one process may serve a file. When
the service is ready, it writes "listening on …" to standard error, and from then on a line of JSON for
each request. On SIGTERM it lets requests end, for up to 20 seconds, and exits 0. --timeout only limits
opening the store.

Before "listening on …" it writes where the accounts are and where the console is: pages for operators,
people who look after accounts. As long as there is no operator, it also writes a link that creates the
first one and is valid for an hour. 'userdb operator add' creates one at any time.`,
		Example: `  userdb serve
  userdb serve --listen :8470 --tls-cert cert.pem --tls-key key.pem
  userdb serve --listen :8470 --behind-proxy --proxy 10.0.0.0/8
  userdb serve --metrics 127.0.0.1:9470`,
		RunE: s.run(func(ctx context.Context, _ []string) error { return s.serve(ctx, v) }, serves, allTypes),
	}
	c.Flags().StringVar(&v.listen, "listen", "127.0.0.1:8470", "listen on `ADDRESS`")
	c.Flags().StringVar(&v.cert, "tls-cert", "", "`FILE` with the certificate and its chain")
	c.Flags().StringVar(&v.key, "tls-key", "", "`FILE` with the key of the certificate")
	c.Flags().BoolVar(&v.behindProxy, "behind-proxy", false, "a proxy provides TLS: listen without it, even beyond this machine")
	c.Flags().Func("proxy", "trust X-Forwarded-For from proxies in `CIDR`; may be repeated;\ngateway means the gateway of this machine's network, from which requests to\na published port of a container come", func(text string) error {
		prefix, err := parseProxy(text)
		v.proxies = append(v.proxies, prefix)
		return err
	})
	c.Flags().StringVar(&v.metrics, "metrics", "", "serve metrics for Prometheus at /metrics on `ADDRESS`")
	c.Flags().BoolVar(&v.console, "console", true, "serve the console, pages for operators, at /console")
	c.Flags().BoolFunc("operators-factor", "operators need a second factor, at all processes of this store, until one is\nstarted with --operators-factor=false; 'userdb operator enrol' makes the link with\nwhich an operator adds the first one", func(text string) error {
		required, err := strconv.ParseBool(text)
		v.operatorsFactor = &required
		return err
	})
	c.Flags().StringVar(&v.passkeyRP, "passkey-rp", "", "`DOMAIN` of your site, for which passkeys are made; it can never change")
	c.Flags().Func("passkey-origin", "`URL` of your pages that use passkeys, such as https://login.example.com;\nmay be repeated", func(text string) error {
		v.passkeyOrigins = append(v.passkeyOrigins, text)
		return nil
	})
	c.Flags().StringVar(&v.consoleOrigin, "console-origin", "", "`URL` of the console without its path, such as https://console.example.com,\nso that operators can use passkeys")
	c.Flags().StringVar(&v.resetLink, "reset-link", "", "`URL` of your page for a new password, with {secret} in it; operators then\nsee complete links")
	c.Flags().StringVar(&v.cookie, "session-cookie", "session", "/v1/session/check reads the cookie `NAME`")
	v.declareSCIM(c)
	return c
}

// parseProxy parses a value of --proxy: a range of addresses, one address or the word gateway.
func parseProxy(text string) (netip.Prefix, error) {
	if text == "gateway" {
		routes, err := os.ReadFile("/proc/net/route")
		if err != nil {
			return netip.Prefix{}, errors.New("this system does not list its routes in /proc/net/route: give the address of the proxy")
		}
		return defaultGateway(string(routes))
	}
	prefix, err := netip.ParsePrefix(text)
	if address, bad := netip.ParseAddr(text); bad == nil {
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	if err != nil {
		return prefix, errors.New("want addresses such as 10.0.0.0/8 or 192.0.2.7")
	}
	return prefix, nil
}

// defaultGateway returns the gateway of the default route in a routing table as Linux prints it.
func defaultGateway(routes string) (netip.Prefix, error) {
	for line := range strings.Lines(routes) {
		words := strings.Fields(line)
		if len(words) < 3 || words[1] != "00000000" {
			continue
		}
		n, err := strconv.ParseUint(words[2], 16, 32)
		if err != nil || n == 0 {
			continue
		}
		var address [4]byte
		// Linux prints the number in the byte order of the machine.
		binary.NativeEndian.PutUint32(address[:], uint32(n))
		return netip.PrefixFrom(netip.AddrFrom4(address), 32), nil
	}
	return netip.Prefix{}, errors.New("this machine has no gateway: give the address of the proxy")
}

// declareSCIM declares the flags for directories.
func (v *serveFlags) declareSCIM(c *cobra.Command) {
	c.Flags().BoolVar(&v.scim, "scim", false, "let directories like Okta and Entra ID manage accounts: SCIM at /scim/v2")
	c.Flags().StringVar(&v.userName, "scim-username", "", "the identifying `FIELD` that is SCIM's userName (default email)")
	c.Flags().StringVar(&v.mapping, "scim-mapping", "", "`FILE` with JSON that names the fields for emails, name and displayName")
	c.Flags().Func("scim-map", "tag the members of a group, by its name or id: `GROUP=TAG`; may be\nrepeated; @TYPE:GROUP and @NAMESPACE/TYPE:GROUP are groups of other users", func(text string) error {
		group, tag, ok := strings.Cut(text, "=")
		if !ok || group == "" || tag == "" || v.tags[group] != "" {
			return errors.New("want GROUP=TAG, each group once")
		}
		if v.tags == nil {
			v.tags = map[string]string{}
		}
		v.tags[group] = tag
		return nil
	})
}

// scimOptions returns the options for SCIM, or nil without --scim.
func (v serveFlags) scimOptions() (*scim.Options, error) {
	if !v.scim {
		if v.userName != "" || v.mapping != "" || len(v.tags) > 0 {
			return nil, usagef("--scim-username, --scim-mapping and --scim-map need --scim")
		}
		return nil, nil
	}
	o := &scim.Options{UserName: v.userName, Tags: v.tags}
	if v.mapping == "" {
		return o, nil
	}
	file, err := os.Open(v.mapping)
	if err != nil {
		return nil, usagef("--scim-mapping: %v", err)
	}
	defer file.Close()
	if o.Mapping, err = scim.ReadMapping(file); err != nil {
		return nil, usagef("--scim-mapping: %v", err)
	}
	return o, nil
}

func (s *session) serve(ctx context.Context, v serveFlags) error {
	o, err := v.options()
	if err != nil {
		return err
	}
	if v.sharesOrigin() {
		fmt.Fprintln(s.std.err, "userdb: warning: pages of accounts have the console's origin, so their scripts could use operators' passkeys")
	}
	l, secured, err := v.listener(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	errs := newPump(s.std.err)
	defer errs.end()
	watched := metrics.New(metrics.Options{})
	s.observers = []userdb.Observer{watched}
	// Events below a warning name accounts and stay out of the log.
	s.log = slog.New(slog.NewJSONHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := v.openStore(ctx, s); err != nil {
		return err
	}
	unshare, err := s.shareFile(ctx)
	if err != nil {
		return err
	}
	defer unshare()
	if o.Namespace, err = recordkey.ParseNamespace(s.Namespace); err != nil {
		return err
	}
	o.TLS, o.Logger = secured, slog.New(slog.NewJSONHandler(errs, nil))
	service, err := newService(ctx, s.db, o)
	if err != nil {
		return err
	}
	stopMetrics, err := v.serveMetrics(ctx, errs, watched, service.Metrics(), collectors.NewGoCollector())
	if err != nil {
		return err
	}
	defer stopMetrics()
	scheme := "http"
	if v.cert != "" {
		scheme = "https"
	}
	if err := v.printURLs(ctx, s, errs, scheme+"://"+browserAddress(l.Addr())); err != nil {
		return err
	}
	fmt.Fprintf(errs, "listening on %s://%s\n", scheme, l.Addr())
	return service.Run(ctx, l)
}

// options checks the flags, and returns the options of the service. Namespace, TLS and Logger are
// not set, because they depend on more than the flags.
func (v serveFlags) options() (serve.Options, error) {
	o := serve.Options{Proxies: v.proxies, SessionCookie: v.cookie, Version: readBuild().Version, Console: v.console, ResetLink: v.resetLink}
	if (&http.Cookie{Name: v.cookie}).Valid() != nil {
		return o, usagef("--session-cookie %q: not a valid name for a cookie", v.cookie)
	}
	err := v.checkResetLink()
	if err == nil {
		o.Passkeys, o.OperatorPasskeys, err = v.passkeyConfigs()
	}
	if err == nil {
		o.SCIM, err = v.scimOptions()
	}
	return o, err
}

// openStore opens the store, and prepares it for second factors and passkeys. Each step may take as
// long as --timeout says.
func (v serveFlags) openStore(ctx context.Context, s *session) error {
	makeKeys := func(ctx context.Context) error { return s.makeKeys(ctx, v.console || len(v.passkeyOrigins) > 0) }
	prepareFactors := func(ctx context.Context) error { return v.prepareFactors(ctx, s) }
	for _, step := range []func(context.Context) error{s.open, s.checkKeys, makeKeys, prepareFactors} {
		if err := within(ctx, s.timeout(), step); err != nil {
			return err
		}
	}
	if v.passkeyRP != "" && !s.hasKeys {
		return usagef("--passkey-rp needs keys that encrypt passkeys: give --key-file")
	}
	return nil
}

// shareFile lets other commands use the file of an embedded store while the service runs, until
// unshare is called.
func (s *session) shareFile(ctx context.Context) (unshare func(), err error) {
	end, err := connect.Share(view.Of(s.db).Engine)
	switch {
	case errors.Is(err, connect.ErrShared):
		// This service would work through the other one, and fail when that one ends.
		return nil, usagef("another 'userdb serve' is using the file: stop it, or name a Redis with --store, which any number may serve")
	case err != nil:
		s.log.WarnContext(ctx, "other commands cannot use the file meanwhile: "+err.Error())
		return func() {}, nil
	}
	return func() { _ = end() }, nil // if it fails, the socket is left behind, which does no harm
}

// newService returns a service, and prepares the store for directories.
func newService(ctx context.Context, db *userdb.DB, o serve.Options) (*serve.Service, error) {
	service, err := serve.New(db, o)
	if err == nil {
		err = service.PrepareSCIM(ctx)
	}
	if errors.Is(err, scim.ErrOptions) {
		err = usagef("%v", err)
	}
	return service, err
}

// prepareFactors stores the value of --operators-factor and, if it is true, allows operators to
// enrol second factors. Without the flag, it prints a note if an earlier process required factors.
func (v serveFlags) prepareFactors(ctx context.Context, s *session) error {
	if v.operatorsFactor == nil {
		required, err := admin.FactorsRequired(ctx, s.db)
		if required && v.console {
			fmt.Fprintln(s.std.err, "operators need a second factor; --operators-factor=false ends that")
		}
		if required && v.console && !s.hasKeys {
			fmt.Fprintln(s.std.err, "userdb: warning: operators need a second factor, and without --key-file none of them can sign in here")
		}
		return err
	}
	switch {
	case !v.console:
		return usagef("--operators-factor is for the console, which --console=false turns off")
	case *v.operatorsFactor && !s.hasKeys:
		return usagef("--operators-factor needs keys that encrypt the secrets of second factors: give --key-file")
	}
	if *v.operatorsFactor {
		if err := admin.AllowFactors(ctx, s.db); err != nil {
			return err
		}
	}
	return admin.RequireFactors(ctx, s.db, *v.operatorsFactor)
}

// passkeyConfigs returns the configurations of passkeys for accounts and for operators. They have
// the same relying party. Each is nil if no origin for it is given.
func (v serveFlags) passkeyConfigs() (accounts, operators *passkey.Config, err error) {
	config := func(flag string, origins ...string) (*passkey.Config, error) {
		c := &passkey.Config{RPID: v.passkeyRP, Origins: origins}
		if err := c.Check(); err != nil {
			return nil, usagef("--passkey-rp and %s: %v", flag, err)
		}
		return c, nil
	}
	switch origins := len(v.passkeyOrigins) > 0 || v.consoleOrigin != ""; {
	case origins != (v.passkeyRP != ""):
		return nil, nil, usagef("--passkey-rp needs --passkey-origin or --console-origin, and they need it")
	case v.consoleOrigin != "" && !v.console:
		return nil, nil, usagef("--console-origin is for the console, which --console=false turns off")
	}
	if len(v.passkeyOrigins) > 0 {
		if accounts, err = config("--passkey-origin", v.passkeyOrigins...); err != nil {
			return nil, nil, err
		}
	}
	if v.consoleOrigin != "" {
		operators, err = config("--console-origin", v.consoleOrigin)
	}
	return accounts, operators, err
}

// sharesOrigin reports whether accounts use passkeys on pages of the console's origin. It returns
// false for localhost, where tests may do so.
func (v serveFlags) sharesOrigin() bool {
	u, err := url.Parse(v.consoleOrigin)
	local := err == nil && (u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost"))
	return v.consoleOrigin != "" && !local && slices.Contains(v.passkeyOrigins, v.consoleOrigin)
}

// checkResetLink returns an error if --reset-link cannot be used.
func (v serveFlags) checkResetLink() error {
	if v.resetLink == "" {
		return nil
	}
	u, err := url.Parse(strings.Replace(v.resetLink, "{secret}", "x", 1))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Count(v.resetLink, "{secret}") != 1 {
		return usagef("--reset-link %s: want a URL that contains {secret} once, such as https://shop.example/reset?token={secret}", printable(v.resetLink))
	}
	if !v.console {
		return usagef("--reset-link is for the console, which --console=false turns off")
	}
	return nil
}

// printURLs prints the URLs of the accounts and the console and, if there is no operator yet, a
// link that makes the first one. base is the URL of the service.
func (v serveFlags) printURLs(ctx context.Context, s *session, out io.Writer, base string) error {
	fmt.Fprintln(out, "accounts: "+oneLine(hideCredentials(s.url)))
	if !v.console {
		return nil
	}
	fmt.Fprintln(out, "console: "+base+"/console")
	return within(ctx, s.timeout(), func(ctx context.Context) error {
		token, err := admin.BeginSetup(ctx, s.db)
		switch {
		case errors.Is(err, admin.ErrAlreadySetUp):
			return nil
		case errors.Is(err, userdb.ErrUnavailable): // a full store can still be read
			s.log.WarnContext(ctx, "there is no link for the first operator: "+err.Error()+"; once that is mended, create the operator with 'userdb operator add'")
			return nil
		case err != nil:
			return err
		}
		if exposed(s.std.err) {
			fmt.Fprintln(out, "userdb: warning: others may read the file that this is written to, and use the link; 'umask 077' hides new files from them")
		}
		fmt.Fprintf(out, "first operator: %s/console/setup?token=%s\n", base, token)
		return nil
	})
}

// browserAddress returns the address at which a browser on this machine reaches a listener on a.
func browserAddress(a net.Addr) string {
	at, ok := a.(*net.TCPAddr)
	if ok && at.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(at.Port))
	}
	return a.String()
}

// listener listens on the address of --listen, with TLS if there is a certificate. It refuses to
// listen beyond this machine without TLS, unless a proxy provides it.
func (v serveFlags) listener(ctx context.Context) (l net.Listener, secured *tls.Config, err error) {
	if (v.cert == "") != (v.key == "") {
		return nil, nil, usagef("--tls-cert and --tls-key need each other")
	}
	if v.cert != "" && v.behindProxy {
		return nil, nil, usagef("--behind-proxy and --tls-cert cannot be combined")
	}
	if len(v.proxies) > 0 && !v.behindProxy && v.cert == "" {
		return nil, nil, usagef("--proxy needs --behind-proxy or --tls-cert")
	}
	if err := checkAddress(v.listen); err != nil {
		return nil, nil, usagef("--listen: %v", err)
	}
	if v.cert == "" && !v.behindProxy && !isLoopback(v.listen) {
		return nil, nil, usagef("--listen %s: without TLS others could listen in: give --tls-cert and --tls-key, or --behind-proxy", v.listen)
	}
	if v.cert != "" {
		pair, err := tls.LoadX509KeyPair(v.cert, v.key)
		if err != nil {
			return nil, nil, usagef("--tls-cert: %v", err)
		}
		secured = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	}
	var config net.ListenConfig
	if l, err = config.Listen(ctx, "tcp", v.listen); err != nil {
		return nil, nil, usagef("--listen: %v", explainInUse(err))
	}
	return l, secured, nil
}

// checkAddress returns an error if text is not an address with a port.
func checkAddress(text string) error {
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
		return fmt.Errorf("%q is not an address with a port, such as 127.0.0.1:8470 or :8470", text)
	}
	return nil
}

// explainInUse adds advice to an error that says that an address is in use.
func explainInUse(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: stop what is listening there, or choose another port", err)
	}
	return err
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

func (v serveFlags) serveMetrics(ctx context.Context, out io.Writer, all ...prometheus.Collector) (stop func(), err error) {
	if v.metrics == "" {
		return func() {}, nil
	}
	registry := prometheus.NewRegistry()
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	if err := checkAddress(v.metrics); err != nil {
		return nil, usagef("--metrics: %v", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", v.metrics)
	if err != nil {
		return nil, usagef("--metrics: %v", explainInUse(err))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: grace * 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	go func() { _ = server.Serve(l) }() // it returns when the server is closed
	fmt.Fprintf(out, "metrics at http://%s/metrics\n", l.Addr())
	return func() { _ = server.Close() }, nil
}
