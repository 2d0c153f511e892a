package totp_test

import (
	"encoding/hex"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/totp"
)

// TestVectors checks the codes of RFC 6238, appendix B, for SHA-1, of which six digits are used.
func TestVectors(t *testing.T) {
	for seconds, want := range map[int64]string{
		59: "94287082", 1111111109: "07081804", 1111111111: "14050471",
		1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130",
	} {
		if got := totp.Code([]byte("12345678901234567890"), totp.Step(time.Unix(seconds, 0))); got != want[2:] {
			t.Errorf("at %d: got %s, want %s", seconds, got, want[2:])
		}
	}
}

// TestOathtool compares a thousand codes with those of oathtool, which prints a window of codes at
// a time.
func TestOathtool(t *testing.T) {
	tool, err := exec.LookPath("oathtool")
	if err != nil {
		t.Skip("oathtool is not installed")
	}
	for range 20 {
		secret, at := totp.NewSecret(), time.Unix(rand.Int64N(1<<33), 0)
		out, err := exec.CommandContext(t.Context(), tool, "--totp", "-b", "-w", "49", "--now", at.UTC().Format("2006-01-02 15:04:05 UTC"), totp.Text(secret)).Output()
		if err != nil {
			t.Fatal(err)
		}
		codes := strings.Fields(string(out))
		if len(codes) != 50 {
			t.Fatalf("got %d codes, want 50", len(codes))
		}
		for i, want := range codes {
			if got := totp.Code(secret, totp.Step(at)+int64(i)); got != want {
				t.Errorf("secret %s, %d periods after %v: got %s, want %s", hex.EncodeToString(secret), i, at, got, want)
			}
		}
	}
}

// TestMatch checks which codes are accepted, and that none is accepted twice.
func TestMatch(t *testing.T) {
	secret, at := []byte("12345678901234567890"), time.Unix(1111111111, 0)
	now := totp.Step(at)
	for _, tt := range []struct {
		what      string
		entered   string
		after     int64
		want      int64
		wantMatch bool
	}{
		{"the present step", totp.Code(secret, now), 0, now, true},
		{"one step before", totp.Code(secret, now-1), 0, now - 1, true},
		{"one step after", totp.Code(secret, now+1), 0, now + 1, true},
		{"two steps before", totp.Code(secret, now-2), 0, 0, false},
		{"two steps after", totp.Code(secret, now+2), 0, 0, false},
		{"with spaces", " " + totp.Code(secret, now)[:3] + " " + totp.Code(secret, now)[3:] + "\n", 0, now, true},
		{"used before", totp.Code(secret, now), now, 0, false},
		{"older than one that was used", totp.Code(secret, now-1), now, 0, false},
		{"newer than one that was used", totp.Code(secret, now+1), now, now + 1, true},
		{"empty", "", 0, 0, false},
		{"too short", totp.Code(secret, now)[1:], 0, 0, false},
		{"too long", "0" + totp.Code(secret, now), 0, 0, false},
		{"Arabic digits", "٠٥٠٤٧١", 0, 0, false},
	} {
		if got, ok := totp.Match(secret, tt.entered, at, tt.after); got != tt.want || ok != tt.wantMatch {
			t.Errorf("%s: got %d, %v; want %d, %v", tt.what, got, ok, tt.want, tt.wantMatch)
		}
	}
}

// TestURI checks that an app reads issuer, account and secret from the URI, unchanged.
func TestURI(t *testing.T) {
	secret := []byte("12345678901234567890")
	for _, tt := range [][2]string{{"Shop", "ada@example.com"}, {"A & B/C?", "a b+c&d=e"}, {"", "ada"}} {
		u, err := url.Parse(totp.URI(tt[0], tt[1], secret))
		if err != nil {
			t.Fatal(err)
		}
		want := "/" + tt[0] + ":" + tt[1]
		if tt[0] == "" {
			want = "/" + tt[1]
		}
		q := u.Query()
		if u.Scheme != "otpauth" || u.Host != "totp" || u.Path != want || q.Get("issuer") != tt[0] || q.Get("secret") != "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" {
			t.Errorf("%q: got %v, want this issuer, this account and the secret", tt, u)
		}
		if strings.Contains(u.RawQuery, "+") {
			t.Errorf("%q: got the query %s, want spaces as %%20", tt, u.RawQuery)
		}
	}
}
