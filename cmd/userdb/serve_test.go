package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestPasskeyConfigs checks that accounts and operators have the origins from their own flags, and
// that sharesOrigin reports whether accounts have the console's origin, except on localhost.
func TestPasskeyConfigs(t *testing.T) {
	const shop, other, console = "https://shop.example.com", "https://example.com", "https://console.example.com"
	v := serveFlags{console: true, passkeyRP: "example.com", passkeyOrigins: []string{shop, other}}
	accounts, operators, err := v.passkeyConfigs()
	must(t, err)
	if operators != nil || !slices.Equal(accounts.Origins, []string{shop, other}) {
		t.Errorf("without --console-origin, accounts have %v and operators %v; want the two origins and no configuration", accounts, operators)
	}
	v.consoleOrigin = console
	accounts, operators, err = v.passkeyConfigs()
	must(t, err)
	if !slices.Equal(accounts.Origins, []string{shop, other}) || !slices.Equal(operators.Origins, []string{console}) {
		t.Errorf("with --console-origin, accounts have %v and operators %v; want their own origins", accounts, operators)
	}
	v.passkeyOrigins = nil
	if accounts, operators, err = v.passkeyConfigs(); err != nil || accounts != nil || operators == nil {
		t.Errorf("with --console-origin alone, accounts have %v and operators %v, %v; want only operators to have a configuration", accounts, operators, err)
	}
	for _, tt := range []struct {
		console string
		shares  bool
	}{{"", false}, {console, false}, {shop, true}, {"http://localhost:8470", false}} {
		v.consoleOrigin, v.passkeyOrigins = tt.console, []string{shop, "http://localhost:8470"}
		if v.sharesOrigin() != tt.shares {
			t.Errorf("the console at %q shares an origin with accounts: got %v, want %v", tt.console, !tt.shares, tt.shares)
		}
	}
}

// TestGateway finds the gateway in routing tables in the format of Linux.
func TestGateway(t *testing.T) {
	const head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	for _, tt := range []struct{ name, routes, want string }{
		{"gateway of a bridge", head + "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n", "172.17.0.1/32"},
		{"default route after another route", head + "eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\neth0\t00000000\t0158A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n", "192.168.88.1/32"},
		{"point-to-point link without a gateway", head + "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n", ""},
		{"no routes", head, ""},
		{"not a routing table", "00000000 00000000 x", ""},
	} {
		got, err := defaultGateway(tt.routes)
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || got.String() != tt.want) {
			t.Errorf("%s: got %v, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// TestExposed checks which modes allow other users to read a file.
func TestExposed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes of files say nothing there")
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: true, 0o644: true} {
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_WRONLY, mode)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := file.Chmod(mode); err != nil {
			t.Fatal(err)
		}
		if got := exposed(file); got != want {
			t.Errorf("exposed reports %v for a file of mode %v, want %v", got, mode, want)
		}
	}
	var none io.Writer = &strings.Builder{}
	if exposed(none) {
		t.Error("exposed reports true for a writer that is not a file")
	}
}
