package console

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestDescribeDevice checks that browsers are described in words that their owners know, unless
// they say too little.
func TestDescribeDevice(t *testing.T) {
	for agent, want := range map[string]string{
		"": "An unknown device",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                                  "Firefox on Linux",
		"curl/8.5.0":        "An unknown device",
		"<b>bold</b>; a (;": "An unknown device",
	} {
		if got := describeDevice(agent); got != want {
			t.Errorf("describeDevice(%q) = %q, want %q", agent, got, want)
		}
	}
}

// TestByWhom checks that the name of any actor fits into a sentence.
func TestByWhom(t *testing.T) {
	for who, want := range map[string]string{"": ", by somebody at", "operator:Ann": ", by operator Ann at", "Éric": ", by éric at", "\xff": ", by \xff at"} {
		got := byWhom([]userdb.HistoryEvent{{Kind: "disable", Actor: who}}, "disable")
		if len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("actor %q: got %q, want it to begin with %q", who, got, want)
		}
	}
}

// TestFactorsText checks that the history names every method by which the second step can be taken.
func TestFactorsText(t *testing.T) {
	for methods, want := range map[string]string{
		"":                      "removed the second step",
		"passkey":               "changed the second step, which is now by passkey",
		"recovery,totp":         "changed the second step, which is now by app or recovery code",
		"passkey,recovery,totp": "changed the second step, which is now by app or passkey or recovery code",
		"another":               "changed the second step",
	} {
		if got := factorsText(methods); got != want {
			t.Errorf("factorsText(%q) = %q, want %q", methods, got, want)
		}
	}
}

// TestJobProgress checks that the page of a job without a known end shows how much has been done,
// in a number that people can read.
func TestJobProgress(t *testing.T) {
	var page strings.Builder
	must(t, templates.ExecuteTemplate(&page, "job", struct{ Data jobPage }{jobPage{Job: admin.Job{State: admin.JobRunning, Done: 1234567}, Percent: -1}}))
	if want := "1,234,567 so far"; !strings.Contains(page.String(), want) {
		t.Errorf("the page lacks %q:\n%s", want, page.String())
	}
}
