// Package qr draws QR codes as SVG that needs no script and no style of its own, for example for a
// visitor who adds an authenticator app. Only programs that import it compile its library.
package qr

import (
	"fmt"
	"html/template"
	"strings"

	"rsc.io/qr"
)

// margin is the width of the white border that readers need, in modules.
const margin = 4

// SVG returns a picture of a text, for html/template. label names it for people who do not see it.
func SVG(text, label string) (template.HTML, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	side := code.Size + 2*margin
	fmt.Fprintf(&b, `<svg class="qr" role="img" aria-label="%s" viewBox="0 0 %d %d" width="%d" height="%d" shape-rendering="crispEdges">`,
		template.HTMLEscapeString(label), side, side, 4*side, 4*side)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><path fill="#000" d="`, side, side)
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			from := x
			for code.Black(x, y) {
				x++
			}
			if x > from {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", from+margin, y+margin, x-from, x-from)
			}
		}
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String()), nil
}
