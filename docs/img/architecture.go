package main

import (
	"fmt"
	"strings"
)

// A layer is a row of the picture of the architecture. A room is a package, with the folders below
// it; it imports only rooms of its own layer and of lower ones.
type layer struct {
	title string
	dir   string   // the folder that all rooms are in, if they have one in common
	rooms []string // drawn as boxes
	also  []string // rooms of this layer that are not drawn

	// What the rooms do for one write and for one read, in lines of the picture.
	write, read []string
}

// layers holds the layers from top to bottom. A room includes the folders below it, unless they are
// listed themselves.
var layers = []layer{
	{
		title: "Programs",
		rooms: []string{"cmd/userdb", "serve"},
		also:  []string{"examples/webapp", "userdbtest"},
		write: []string{"a command, a request or a form"},
		read:  []string{"an identifier that somebody types"},
	},
	{
		title: "What is built on the library",
		rooms: []string{"web", "passkey", "maintain"},
		also:  []string{"internal/coded", "userdb/metrics", "userdb/trace"},
	},
	{
		title: "The library",
		rooms: []string{"userdb"},
		also:  []string{"internal/connect", "internal/embedded", "internal/hashpool", "internal/typed"},
		write: []string{"1 Create encodes the facets,", "hashes the password"},
		read:  []string{"1 Find takes the type under", "the schema in force"},
	},
	{
		title: "One value for a change or a lookup",
		dir:   "internal",
		rooms: []string{"view", "query", "change"},
		also:  []string{"internal/storedschema"},
		write: []string{"2 change checks the rules and builds", "one change; view adds what the", "history will say"},
		read:  []string{"2 query turns the hint into a", "lookup: one PRK, or the SRKs", "that may hold the value"},
	},
	{
		title: "Engines, the only code that talks to Redis",
		dir:   "internal/store",
		rooms: []string{"single", "cluster", "onekey", "redisx"},
		write: []string{"3 one server: one script", "cluster: claims, checks, one commit"},
		read:  []string{"3 one server: one script", "cluster: GET, then HGETALL"},
	},
	{
		title: "Changes, lookups, errors",
		dir:   "internal",
		rooms: []string{"store"},
		read:  []string{"4 an SRK is believed only if its", "entry is live and has the value"},
	},
	{
		title: "Owners of a kind of record: keys, scripts, values, limits",
		dir:   "internal/store",
		rooms: []string{"throttle", "token", "session", "history"},
		also:  []string{"internal/store/arg", "internal/store/factor"},
	},
	{
		title: "Meaning: no Redis, no clock",
		rooms: []string{"hints", "validate", "schema", "password", "recordkey"},
		also:  []string{"internal/csvtext", "internal/filelock", "internal/hashcost", "internal/passkeys", "internal/privatefile", "internal/sealed", "internal/strictjson", "internal/structs", "internal/totp"},
	},
}

const (
	layerWidth, layersX   = 440, 20
	writeX, readX         = 484, 774
	planWidth             = 1036
	firstLayerY           = 48
	layerHeight, layerGap = 78, 10
	lineHeight            = 17
)

// drawArchitecture returns the picture of the layers, with the paths of one write and one read.
func drawArchitecture() string {
	height := firstLayerY + (len(layers)+1)*(layerHeight+layerGap) + 8
	var b strings.Builder
	begin(&b, planWidth, height, "Layers of packages, from programs down to Redis, and what each does for one write and one read")
	text(&b, layersX, 24, "note", "each package imports its own layer and lower ones")
	text(&b, writeX, 24, "note", "one write: Create")
	text(&b, readX, 24, "note", "one read: Find")
	redisY := firstLayerY + len(layers)*(layerHeight+layerGap)
	for _, x := range [...]int{writeX, readX} {
		fmt.Fprintf(&b, `<path class="leads" d="M%d 36 L %d %d" marker-end="url(#leads)"/>`+"\n", x, x, redisY-4)
	}
	for i, l := range layers {
		l.draw(&b, firstLayerY+i*(layerHeight+layerGap))
	}
	box(&b, "store", layersX, redisY, planWidth-2*layersX, layerHeight-14, 8)
	text(&b, layersX+14, redisY+24, "note", "Redis")
	text(&b, layersX+14, redisY+47, "room", "user/uid:9a4c88dbc084 (a hash) · user/email:alice@hotmail.com/~prk (a string: the PRK)")
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws a layer whose upper edge is at y.
func (l layer) draw(b *strings.Builder, y int) {
	box(b, "layer", layersX, y, layerWidth, layerHeight, 8)
	title := l.title
	if l.dir != "" {
		title += " · " + l.dir + "/"
	}
	text(b, layersX+14, y+24, "note", title)
	const inset, gap = 12, 8
	n := len(l.rooms)
	width := (layerWidth - 2*inset - (n-1)*gap) / n
	for i, room := range l.rooms {
		x := layersX + inset + i*(width+gap)
		box(b, "box", x, y+36, width, 30, 6)
		fmt.Fprintf(b, `<text class="room" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x+width/2, y+56, room)
	}
	drawLines(b, writeX, y, l.write)
	drawLines(b, readX, y, l.read)
}

// drawLines draws what a layer does, beside the arrow at x and in the middle of the layer.
func drawLines(b *strings.Builder, x, y int, lines []string) {
	y += (layerHeight - len(lines)*lineHeight) / 2
	for i, line := range lines {
		text(b, x+14, y+13+i*lineHeight, "step", line)
	}
}
