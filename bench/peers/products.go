package main

// A call describes what one operation is about.
type call struct {
	n       int // the number of accounts that are loaded
	account int // one of them
	session session
	fresh   int // a number not used before: of the account to create, or of the note to write
	caller  int
	key     string // userdb's API key, or what a peer gives its backend: see startPocketBase
}

// A session holds what a visitor got by signing in.
type session struct {
	secret  string
	account int
}

// A job describes what callers do, with each product, to measure a row of the report.
type job struct {
	name   string
	what   string // for readers
	ours   operation
	theirs map[string]operation // by the name of the peer; a peer that cannot do the job is missing
}

// An operation describes what one caller does with a product.
type operation struct {
	how string // for readers: the request
	ask ask
}

// An ask writes the request of one operation and the expectation of its answer.
type ask func(r *request, e *expectation, c call)

// jobs lists all jobs in the order in which they are measured. Those that write come last, so that
// they do not affect the others.
var jobs = []job{
	{
		name: "get", what: "one account by its id, by a backend",
		ours: operation{"`GET /v1/types/user/entries/UID`, API key", userdb.get("types/user/entries/")},
		theirs: map[string]operation{
			"pocketbase":  {"`GET /api/collections/users/records/ID`, superuser token", pocketbase.get("records/")},
			"better-auth": {"`GET /api/auth/admin/get-user?id=ID`, administrator's cookie", betterAuth.get("admin/get-user?id=")},
		},
	},
	{
		name: "find", what: "one account by its address, by a backend",
		ours: operation{"`POST /v1/types/user/lookup` with `value` and `field`, API key", ourFind},
		theirs: map[string]operation{
			"pocketbase":  {"`GET …/records?perPage=1&skipTotal=1&filter=email=\"…\"`, superuser token", pocketBaseFind},
			"better-auth": {"`GET /api/auth/admin/list-users?limit=1` with `filterField=email`, administrator's cookie; it also counts", betterAuthFind},
		},
	},
	{
		name: "list", what: "a page of up to 50 accounts of one city, by a backend",
		ours: operation{"`GET …/entries?where=city:…&limit=50`, API key", userdb.list("types/user/entries?limit=", "&where=city:", "")},
		theirs: map[string]operation{
			"pocketbase":  {"`GET …/records?perPage=50&skipTotal=1&filter=city=\"…\"`, superuser token", pocketbase.list("records?perPage=", `&skipTotal=1&filter=city%3D%22`, "%22")},
			"better-auth": {"`GET /api/auth/admin/list-users?limit=50` with `filterField=city`, administrator's cookie; it also counts", betterAuth.list("admin/list-users?limit=", "&filterField=city&filterOperator=eq&filterValue=", "")},
		},
	},
	{
		name: "session", what: "the session and the account that a visitor's secret belongs to",
		ours: operation{"`POST /v1/session`, API key", ourSession},
		theirs: map[string]operation{
			"pocketbase":  {"`POST …/auth-refresh` with the visitor's token, which also signs a new one", pocketBaseSession},
			"better-auth": {"`GET /api/auth/get-session` with the visitor's cookie", betterAuthSession},
		},
	},
	{
		name: "forward", what: "whether a visitor's secret is valid and whose it is, for a proxy",
		ours: operation{"`GET /v1/session/check` with the visitor's cookie, API key", ourForward},
		theirs: map[string]operation{
			"pocketbase": {"`GET …/records/ID?fields=id` with the visitor's token, by the rule `id = @request.auth.id`", pocketBaseForward},
		},
	},
	{
		name: "sign-in", what: "a check of address and password, and the start of a session",
		ours: operation{"`POST /v1/types/user/login` with `session` and `origin`, API key", ourSignIn},
		theirs: map[string]operation{
			"pocketbase":  {"`POST …/auth-with-password`", pocketBaseSignIn},
			"better-auth": {"`POST /api/auth/sign-in/email`", betterAuthSignIn},
		},
	},
	{
		name: "update", what: "one field of an account, by a backend",
		ours: operation{"`PATCH /v1/types/user/entries/UID` with one facet, API key", ourUpdate},
		theirs: map[string]operation{
			"pocketbase":  {"`PATCH …/records/ID` with one field, superuser token", pocketBaseUpdate},
			"better-auth": {"`POST /api/auth/admin/update-user` with one field, administrator's cookie", betterAuthUpdate},
		},
	},
	{
		name: "create", what: "an account with a password, by a backend",
		ours: operation{"`POST /v1/types/user/entries`, API key", ourCreate},
		theirs: map[string]operation{
			"pocketbase":  {"`POST …/records`, superuser token", pocketBaseCreate},
			"better-auth": {"`POST /api/auth/admin/create-user`, administrator's cookie", betterAuthCreate},
		},
	},
}

// A product holds what all requests to a product, and all answers from it, have in common.
type product struct {
	path   string // the beginning of every path
	auth   string // the header before the key
	id     string // the name of an account's id
	header string // further lines of each request
}

var (
	userdb     = product{path: "/v1/", auth: "Authorization: Bearer ", id: "uid"}
	pocketbase = product{path: "/api/collections/users/", auth: "Authorization: ", id: "id"}
	betterAuth = product{path: "/api/auth/", auth: "Cookie: ", id: "id", header: "Origin: http://127.0.0.1\r\n"}
)

// begin begins a request, with a key unless that is "", and the expectation of its answer.
func (p product) begin(r *request, e *expectation, method, path, key string, status int) {
	r.begin(method)
	r.path = append(append(r.path, p.path...), path...)
	r.header = append(r.header, p.header...)
	if key != "" {
		r.header = append(append(append(r.header, p.auth...), key...), lineEnd...)
	}
	e.begin(status)
}

// get returns the operation that reads an account by its id.
func (p product) get(path string) ask {
	return func(r *request, e *expectation, c call) {
		p.begin(r, e, "GET", path, c.key, 200)
		r.path = appendUID(r.path, c.account)
		e.account(p.id, c.account)
	}
}

// list returns the operation that reads a page of the accounts of a city. The size of the page
// follows start, and the city follows filter.
func (p product) list(start, filter, end string) ask {
	return func(r *request, e *expectation, c call) {
		p.begin(r, e, "GET", start, c.key, 200)
		r.path = append(appendInt(r.path, pageSize), filter...)
		r.path = append(appendCity(r.path, c.account), end...)
		e.page(c)
	}
}

func ourFind(r *request, e *expectation, c call) {
	userdb.begin(r, e, "POST", "types/user/lookup", c.key, 200)
	r.body = append(appendAddress(append(r.body, `{"field":"email","value":"`...), c.account), `"}`...)
	e.account(userdb.id, c.account)
}

func pocketBaseFind(r *request, e *expectation, c call) {
	pocketbase.begin(r, e, "GET", `records?perPage=1&skipTotal=1&filter=email%3D%22`, c.key, 200)
	r.path = append(appendAddress(r.path, c.account), "%22"...)
	e.account(pocketbase.id, c.account)
}

func ourSession(r *request, e *expectation, c call) {
	userdb.begin(r, e, "POST", "session", c.key, 200)
	r.body = append(append(append(r.body, `{"secret":"`...), c.session.secret...), `"}`...)
	e.once(`"active":true`)
	e.account(userdb.id, c.session.account)
}

func pocketBaseSession(r *request, e *expectation, c call) {
	pocketbase.begin(r, e, "POST", "auth-refresh", c.session.secret, 200)
	e.once(`"token":"ey`)
	e.account(pocketbase.id, c.session.account)
}

func ourForward(r *request, e *expectation, c call) {
	userdb.begin(r, e, "GET", "session/check", c.key, 204)
	r.header = append(append(append(r.header, "Cookie: session="...), c.session.secret...), lineEnd...)
	e.texts = append(appendUID(append(e.texts, "\r\nUserdb-Uid: "...), c.session.account), lineEnd...)
	e.head()
}

func pocketBaseForward(r *request, e *expectation, c call) {
	pocketbase.begin(r, e, "GET", "records/", c.session.secret, 200)
	r.path = append(appendUID(r.path, c.session.account), "?fields=id"...)
	e.texts = append(appendUID(append(e.texts, `{"id":"`...), c.session.account), `"}`...)
	e.body(1)
}

// ourSignIn gives each caller an origin of its own, from the addresses that RFC 2544 reserves for
// benchmarks.
func ourSignIn(r *request, e *expectation, c call) {
	userdb.begin(r, e, "POST", "types/user/login", c.key, 200)
	r.body = appendAddress(append(r.body, `{"session":{},"identifier":"`...), c.account)
	r.body = appendInt(append(r.body, `","password":"`+password+`","origin":"198.18.`...), c.caller/256)
	r.body = append(appendInt(append(r.body, '.'), c.caller%256), `"}`...)
	e.once(`"secret":"`)
	e.account(userdb.id, c.account)
}

func pocketBaseSignIn(r *request, e *expectation, c call) {
	pocketbase.begin(r, e, "POST", "auth-with-password", "", 200)
	r.body = append(appendAddress(append(r.body, `{"identity":"`...), c.account), `","password":"`+password+`"}`...)
	e.once(`"token":"ey`)
	e.account(pocketbase.id, c.account)
}

func ourUpdate(r *request, e *expectation, c call) {
	userdb.begin(r, e, "PATCH", "types/user/entries/", c.key, 200)
	r.path = appendUID(r.path, c.account)
	r.body = append(appendNote(append(r.body, `{"facets":{"note":"`...), c.fresh), `"}}`...)
	e.account(userdb.id, c.account)
	e.field("note", appendNote, c.fresh)
}

func pocketBaseUpdate(r *request, e *expectation, c call) {
	pocketbase.begin(r, e, "PATCH", "records/", c.key, 200)
	r.path = appendUID(r.path, c.account)
	r.body = append(appendNote(append(r.body, `{"note":"`...), c.fresh), `"}`...)
	e.account(pocketbase.id, c.account)
	e.field("note", appendNote, c.fresh)
}

func ourCreate(r *request, e *expectation, c call) {
	userdb.begin(r, e, "POST", "types/user/entries", c.key, 201)
	r.body = append(newFields(append(r.body, `{"facets":{`...), c.fresh), `},"password":"`+password+`"}`...)
	e.newAccount(userdb.id, c.fresh)
}

func pocketBaseCreate(r *request, e *expectation, c call) {
	pocketbase.begin(r, e, "POST", "records", c.key, 200)
	r.body = append(newFields(append(r.body, '{'), c.fresh), `,"password":"`+password+`","passwordConfirm":"`+password+`"}`...)
	e.newAccount(pocketbase.id, c.fresh)
}

func betterAuthFind(r *request, e *expectation, c call) {
	betterAuth.begin(r, e, "GET", "admin/list-users?limit=1&filterField=email&filterOperator=eq&filterValue=", c.key, 200)
	r.path = appendAddress(r.path, c.account)
	e.account(betterAuth.id, c.account)
}

func betterAuthSession(r *request, e *expectation, c call) {
	betterAuth.begin(r, e, "GET", "get-session", c.session.secret, 200)
	e.once(`"session":{`)
	e.account(betterAuth.id, c.session.account)
}

func betterAuthSignIn(r *request, e *expectation, c call) {
	betterAuth.begin(r, e, "POST", "sign-in/email", "", 200)
	r.body = append(appendAddress(append(r.body, `{"email":"`...), c.account), `","password":"`+password+`"}`...)
	e.once(`"token":"`)
	e.account(betterAuth.id, c.account)
}

func betterAuthUpdate(r *request, e *expectation, c call) {
	betterAuth.begin(r, e, "POST", "admin/update-user", c.key, 200)
	r.body = appendUID(append(r.body, `{"userId":"`...), c.account)
	r.body = append(appendNote(append(r.body, `","data":{"note":"`...), c.fresh), `"}}`...)
	e.account(betterAuth.id, c.account)
	e.field("note", appendNote, c.fresh)
}

func betterAuthCreate(r *request, e *expectation, c call) {
	betterAuth.begin(r, e, "POST", "admin/create-user", c.key, 200)
	r.body = append(appendNewAddress(append(r.body, `{"email":"`...), c.fresh), `","name":"`...)
	r.body = append(appendNewName(r.body, c.fresh), `","data":{"city":"new"},"password":"`+password+`"}`...)
	e.newAccount(betterAuth.id, c.fresh)
}

// newFields appends the facets of a new account, without the braces.
func newFields(b []byte, fresh int) []byte {
	b = append(appendNewAddress(append(b, `"email":"`...), fresh), `","name":"`...)
	return append(appendNewName(b, fresh), `","city":"new"`...)
}
