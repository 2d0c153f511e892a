package passkey

import (
	_ "embed"
	"net/http"
	"strings"
	"time"
)

//go:embed passkey.js
var script string

// Script returns the JavaScript for pages with forms for passkeys. docs/passkeys.md describes the
// forms.
func Script() string { return script }

// ServeScript serves Script, so that pages need no inline script.
func ServeScript(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "max-age=300")
	http.ServeContent(w, r, "passkey.js", time.Time{}, strings.NewReader(script))
}
