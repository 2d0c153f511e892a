// Command img draws one of the pictures of the documentation, identifiers or architecture, as SVG:
//
//	go run ./docs/img architecture > docs/img/architecture.svg
package main

import (
	"fmt"
	"os"
	"strings"
)

const (
	width, height = 880, 360
	pillX, pillW  = 20, 330
	cardX, cardW  = 520, 340
)

// style follows the reader's choice of a light or dark scheme.
const style = `<style>
text { font: 15px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328 }
.title { font-weight: bold }
.room { font-size: 13px }
.step { font: 14px system-ui, "DejaVu Sans", Helvetica, Arial, sans-serif }
.layer { fill: none; stroke: #d1d9e0; stroke-width: 1.5 }
.store { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
.note { font: 14px system-ui, "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #59636e }
.box { fill: #f6f8fa; stroke: #818b98; stroke-width: 1.5 }
.field { fill: #59636e }
.leads { stroke: #0969da; fill: none; stroke-width: 2 }
.leads-head { fill: #0969da }
.rival { fill: #ffebe9; stroke: #d1242f; stroke-width: 1.5 }
.bounce { stroke: #d1242f; fill: none; stroke-width: 2; stroke-dasharray: 6 4 }
.bounce-head { fill: #d1242f }
.refused { fill: #d1242f; font-weight: bold }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note, .field { fill: #9198a1 }
  .box { fill: #151b23; stroke: #656c76 }
  .leads { stroke: #4493f8 } .leads-head { fill: #4493f8 }
  .layer { stroke: #3d444d }
  .store { fill: #0c2d6b; stroke: #4493f8 }
  .rival { fill: #25171c; stroke: #f85149 }
  .bounce { stroke: #f85149 } .bounce-head, .refused { fill: #f85149 }
}
</style>
`

func main() {
	pictures := map[string]func() string{"identifiers": drawIdentifiers, "architecture": drawArchitecture}
	if len(os.Args) != 2 || pictures[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: img identifiers|architecture")
		os.Exit(2)
	}
	if _, err := os.Stdout.WriteString(pictures[os.Args[1]]()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// begin writes the beginning of a picture: its size, title, style and arrowheads.
func begin(b *strings.Builder, width, height int, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t">`+"\n", width, height)
	b.WriteString(`<title id="t">` + title + `</title>` + "\n" + style)
	b.WriteString(`<defs>` + arrowhead("leads") + arrowhead("bounce") + `</defs>` + "\n")
}

// drawIdentifiers returns the picture of three identifiers that lead to one account, and of a rival
// who is refused one of them.
func drawIdentifiers() string {
	var b strings.Builder
	begin(&b, width, height, "Three identifiers lead to one account; somebody else who asks for one of them is refused")
	text(&b, pillX, 24, "note", "any identifier that a visitor types")
	text(&b, cardX, 24, "note", "one account")
	account := [][2]string{{"email", "alice@hotmail.com"}, {"customer", "0047110"}, {"name", "Alice"}}
	for i, field := range account {
		y := 44 + 56*i
		box(&b, "box", pillX, y, pillW, 40, 20)
		drawField(&b, pillX+20, y+26, field)
		fmt.Fprintf(&b, `<path class="leads" d="M%d %d C %d %d, %d %d, %d %d" marker-end="url(#leads)"/>`+"\n",
			pillX+pillW, y+20, pillX+pillW+80, y+20, cardX-80, 112, cardX-8, 112)
	}
	box(&b, "box", cardX, 40, cardW, 150, 8)
	text(&b, cardX+20, 68, "title", "user/uid:9a4c88dbc084")
	for i, field := range append(account, [2]string{"tags", "admin, early bird"}) {
		drawField(&b, cardX+20, 96+26*i, field)
	}
	rival(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// rival draws somebody who asks for a name that is taken.
func rival(b *strings.Builder) {
	box(b, "rival", pillX, 276, pillW, 40, 8)
	text(b, pillX+20, 301, "", "create user name=ALICE")
	fmt.Fprintf(b, `<path class="bounce" d="M%d 276 L %d 206 C %d 250, %d 262, %d 262" marker-end="url(#bounce)"/>`+"\n",
		pillX+150, pillX+190, pillX+220, pillX+300, cardX-28)
	text(b, cardX-10, 260, "refused", "refused: name is taken")
	text(b, cardX-10, 284, "note", "nothing was written; Alice keeps her name")
	text(b, pillX, 342, "note", "somebody else, at the same moment, in another process")
}

func arrowhead(class string) string {
	return fmt.Sprintf(`<marker id="%s" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path class="%s-head" d="M0 0 L10 5 L0 10 z"/></marker>`, class, class)
}

func box(b *strings.Builder, class string, x, y, w, h, radius int) {
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`+"\n", class, x, y, w, h, radius)
}

func text(b *strings.Builder, x, y int, class, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, s)
}

// drawField draws a field's name and its value.
func drawField(b *strings.Builder, x, y int, field [2]string) {
	text(b, x, y, "field", field[0])
	text(b, x+96, y, "", field[1])
}
