package qr_test

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"testing"

	rsc "rsc.io/qr"

	"github.com/coffeenode/userdb/web/qr"
)

// TestSVG compares the picture that the SVG draws with the modules of the code.
func TestSVG(t *testing.T) {
	const text = "otpauth://totp/Example:ann?secret=ABCDEFGH&issuer=Example"
	got, err := qr.SVG(text, `a "code" <of> an app`)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Label   string `xml:"aria-label,attr"`
		ViewBox string `xml:"viewBox,attr"`
		Path    struct {
			D string `xml:"d,attr"`
		} `xml:"path"`
	}
	if err := xml.Unmarshal([]byte(got), &svg); err != nil {
		t.Fatal(err)
	}
	want, err := rsc.Encode(text, rsc.M)
	if err != nil {
		t.Fatal(err)
	}
	if svg.Label != `a "code" <of> an app` || svg.ViewBox != fmt.Sprintf("0 0 %d %d", want.Size+8, want.Size+8) {
		t.Errorf("got the label %q and the box %q, want the given label and a margin of four modules on each side", svg.Label, svg.ViewBox)
	}
	black := map[[2]int]bool{}
	for _, run := range regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1h-\d+z`).FindAllStringSubmatch(svg.Path.D, -1) {
		var x, y, n int
		if _, err := fmt.Sscan(run[1]+" "+run[2]+" "+run[3], &x, &y, &n); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			black[[2]int{x + i - 4, y - 4}] = true
		}
	}
	for y := -4; y < want.Size+4; y++ {
		for x := -4; x < want.Size+4; x++ {
			if black[[2]int{x, y}] != want.Black(x, y) {
				t.Fatalf("the module at %d, %d is black: %v, want %v", x, y, !want.Black(x, y), want.Black(x, y))
			}
		}
	}
	if strings.Contains(string(got), "style") {
		t.Errorf("a content security policy may forbid inline styles: %s", got)
	}
	if _, err := qr.SVG(strings.Repeat("x", 3000), ""); err == nil {
		t.Error("a text that is too long: got no error")
	}
}
