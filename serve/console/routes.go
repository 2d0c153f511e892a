package console

import (
	"embed"
	"net/http"
	"strings"

	"github.com/coffeenode/userdb/passkey"
)

// A route handles requests of operators who are signed in.
type route struct {
	pattern string
	handler http.HandlerFunc
	// password reports whether the operator must have entered the password within verifiedFor. That
	// applies to requests that give somebody access, that change accounts other than by ending
	// access, or that download accounts as a file.
	password func(*http.Request) bool
}

// setsPassword reports whether the form of the route has the password of an account. In other
// forms, an input called password is that of a facet.
func (rt route) setsPassword() bool { return strings.HasSuffix(rt.pattern, "/password") }

// The values of route.password. They are called after the form has been parsed.
func always(*http.Request) bool              { return true }
func never(*http.Request) bool               { return false }
func unlessUpload(r *http.Request) bool      { return !isUpload(r) }
func ifConfirmed(r *http.Request) bool       { return r.PostFormValue(confirmName) != "" }
func ifRepairConfirmed(r *http.Request) bool { return r.PostFormValue("confirm") != "" }

// uploadRoute is the only route that accepts files.
const uploadRoute = "POST /console/import"

// isUpload reports whether a request uploads a file, which has deadlines and limits of its own.
func isUpload(r *http.Request) bool {
	return r.Pattern == uploadRoute && strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/")
}

// table returns all routes for operators who are signed in.
func (c *Console) table() []route {
	const account, file = "/console/types/{type}/{uid}", "/console/jobs/{id}/files/{name}"
	act := func(name string, do action, password func(*http.Request) bool) route {
		return route{"POST " + account + "/" + name, c.act(name, do), password}
	}
	return []route{
		{"GET /console", c.home, never},
		{"GET /console/{$}", c.home, never},
		{"GET /console/new", c.newAccount, never},
		{"POST /console/new", c.createAccount, always},
		{"POST /console/bulk", c.bulk, ifConfirmed},
		{"GET /console/operators", c.listOperators, never},
		{"/console/", c.notFound, never},
		{"POST /console/signout", c.signOut, never},
		{"GET /console/find", c.find, never},
		{"GET /console/suggest", c.suggest, never},
		{"GET /console/history", c.history, never},
		{"GET /console/schema", c.schema, never},
		{"GET /console/status", c.status, never},

		{"GET /console/security", c.security, never},
		{"POST /console/security/add", c.addApp, always},
		{"POST /console/security/passkey", c.addPasskey, always},
		{"POST /console/security/confirm", c.confirmFactor, always},
		{"POST /console/security/remove", c.removeFactor, always},
		{"POST /console/security/codes", c.replaceCodes, always},
		{"POST /console/passkey/add", c.addChallenge, never},
		{"POST /console/passkey/verify", c.verifyChallenge, never},

		{"GET /console/types/{type}", c.list, never},
		{"GET " + account, c.account, never},
		{"POST " + account, c.edit, ifConfirmed},
		{"POST " + account + "/values", c.changeValues, ifConfirmed},
		{"POST /console/held", c.releaseHeld, ifConfirmed},
		{"GET /console/retired", c.retired, never},
		{"POST /console/retired", c.forgetUID, ifConfirmed},
		{"GET /console/groups", c.listGroups, never},
		act("disable", disable, never),
		act("sessions/end", endSessions, never),
		{"POST " + account + "/delete", c.deleteAccount, always},
		act("enable", enable, always),
		act("waits", resetThrottle, always),
		act("password", setPassword, always),
		act("tags", changeTags, always),
		act("tokens", c.issue, always),
		act("factors", c.removeFactors, ifConfirmed),
		act("codes", c.replaceAccountCodes, always),

		{"GET /console/keys", c.keys, never},
		{"POST /console/keys", c.createKey, always},
		{"POST /console/keys/revoke", c.revokeKey, never},

		{"GET /console/import", c.jobList("import", "Import accounts"), never},
		{uploadRoute, c.startImport, unlessUpload}, // an upload starts a dry run
		{"GET /console/import/{id}", c.mapping, never},
		{"POST /console/import/{id}", c.applyMapping, never}, // previews, or starts a dry run
		{"GET /console/export", c.jobList("export", "Export accounts"), never},
		{"POST /console/export", c.startExport, always},
		{"GET /console/check", c.jobList("check", "Check"), never},
		{"POST /console/check", c.startCheck, ifRepairConfirmed},
		{"GET /console/jobs", c.jobList("", "Jobs"), never},
		{"GET /console/jobs/{id}", c.job, never},
		{"POST /console/jobs/{id}/stop", c.stopJob, never},
		{"GET " + file, c.download, always},
		{"POST " + file, c.download, always}, // the form that asks for the password
	}
}

//go:embed pages/style.css pages/console.js
var files embed.FS

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	for _, name := range []string{"style.css", "console.js"} {
		mux.HandleFunc("GET /console/pages/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=300")
			http.ServeFileFS(w, r, files, "pages/"+name)
		})
	}
	mux.HandleFunc("GET /console/pages/passkey.js", passkey.ServeScript)
	for pattern, handler := range map[string]http.HandlerFunc{
		"/console/setup":               c.setup,
		"/console/signin":              c.signIn,
		"/console/signin/code":         c.signInCode,
		"/console/signin/passkey":      c.signInPasskey,
		"POST /console/passkey/signin": c.visitorChallenge(c.signInChallenge),
		"POST /console/passkey/code":   c.visitorChallenge(c.codeChallenge),
		"POST /console/passkey/enrol":  c.enrolChallenge,
		"/console/enrol":               c.enrol,
		"/console/enrol/confirm":       c.enrolConfirm,
	} {
		mux.Handle(pattern, c.logRequest(c.asVisitor(handler)))
	}
	for _, rt := range c.table() {
		// The second logRequest knows the operator; the first serves requests without one.
		mux.Handle(rt.pattern, c.logRequest(c.requireOperator(c.logRequest(c.asOperator(c.requirePassword(rt))))))
	}
	return c.guard(mux)
}

// logRequest reports the operator and the route of a request to Options.OnRequest.
func (c *Console) logRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.options.OnRequest(r, senderName(r), r.Pattern)
		next.ServeHTTP(w, r)
	})
}
