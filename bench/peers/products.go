package main

// A call is what one operation is about.
type call struct {
	n       int // how many accounts are loaded
	account int // one of them
	session session
	fresh   int // the number of an account that does not exist yet
	caller  int
	key     string // the API key of userdb, or the token of a superuser of PocketBase
}

// A session is what a visitor got at a sign-in.
type session struct {
	secret  string
	account int
}

// A job is what callers do in a row, with each product.
type job struct {
	name        string
	what        string // for readers
	ours, peers verb
}

// A verb writes the request of one operation, and what its answer must be.
type verb struct {
	how string // for readers: the request
	ask func(r *request, e *expectation, c call)
}

// jobs lists all jobs in the order in which they are measured. Those that write come last, so that
// they change nothing for the others.
var jobs = []job{
	{
		name: "get", what: "one account by its id, by a backend",
		ours:  verb{"`GET /v1/types/user/entries/UID`, API key", ourGet},
		peers: verb{"`GET /api/collections/users/records/ID`, superuser token", peerGet},
	},
	{
		name: "find", what: "one account by its address, by a backend",
		ours:  verb{"`POST /v1/types/user/lookup` with `value` and `field`, API key", ourFind},
		peers: verb{"`GET …/records?perPage=1&skipTotal=1&filter=email=\"…\"`, superuser token", peerFind},
	},
	{
		name: "list", what: "a page of 50 accounts of one city, by a backend",
		ours:  verb{"`GET …/entries?where=city:…&limit=50`, API key", ourList},
		peers: verb{"`GET …/records?perPage=50&skipTotal=1&filter=city=\"…\"`, superuser token", peerList},
	},
	{
		name: "session", what: "whose session a visitor's secret is, and the account",
		ours:  verb{"`POST /v1/session`, API key", ourSession},
		peers: verb{"`POST …/auth-refresh` with the visitor's token, which also signs a new one", peerSession},
	},
	{
		name: "forward", what: "whether a visitor's secret is good and whose it is, for a proxy",
		ours:  verb{"`GET /v1/session/check` with the visitor's cookie, API key", ourForward},
		peers: verb{"`GET …/records/ID?fields=id` with the visitor's token, by the rule `id = @request.auth.id`", peerForward},
	},
	{
		name: "sign-in", what: "address and password, and a session that begins",
		ours:  verb{"`POST /v1/types/user/login` with `session` and `origin`, API key", ourSignIn},
		peers: verb{"`POST …/auth-with-password`", peerSignIn},
	},
	{
		name: "create", what: "an account with a password, by a backend",
		ours:  verb{"`POST /v1/types/user/entries`, API key", ourCreate},
		peers: verb{"`POST …/records`, superuser token", peerCreate},
	},
}

// account expects the four fields of account i in the body, once, and no other address. id is the
// product's name for the id.
func (e *expectation) account(id string, i int) {
	e.texts = append(e.texts, `"`+id+`":"`...)
	e.texts = append(appendUID(e.texts, i), '"')
	e.body(1)
	e.texts = append(e.texts, `"email":"`...)
	e.texts = append(appendAddress(e.texts, i), '"')
	e.body(1)
	e.texts = append(e.texts, `"name":"`...)
	e.texts = append(appendName(e.texts, i), '"')
	e.body(1)
	e.texts = append(e.texts, `"city":"`...)
	e.texts = append(appendCity(e.texts, i), '"')
	e.body(1)
	e.texts = append(e.texts, `"email":`...)
	e.body(1)
}

// page expects a page of accounts of one city in the body.
func (e *expectation) page(c call) {
	size := inPage(c.n, c.account)
	e.texts = append(e.texts, `"city":"`...)
	e.texts = append(appendCity(e.texts, c.account), '"')
	e.body(size)
	for _, text := range []string{`"email":"user`, `@example.com"`, `"name":"user number `} {
		e.texts = append(e.texts, text...)
		e.body(size)
	}
}

// newAccount expects the fields of an account that was just created in the body.
func (e *expectation) newAccount(id string, fresh int) {
	e.texts = append(e.texts, `"`+id+`":"`...)
	e.body(1)
	e.texts = append(appendInt(append(e.texts, `"email":"new`...), fresh), `@example.com"`...)
	e.body(1)
	e.texts = append(appendInt(append(e.texts, `"name":"new user `...), fresh), '"')
	e.body(1)
}

// newFields appends the facets of a new account, without the braces.
func newFields(b []byte, fresh int) []byte {
	b = appendInt(append(b, `"email":"new`...), fresh)
	b = appendInt(append(b, `@example.com","name":"new user `...), fresh)
	return append(b, `","city":"new"`...)
}

// ourHead begins a request with the API key.
func ourHead(r *request, method, path, key string) {
	r.begin(method)
	r.path = append(r.path, path...)
	r.header = append(append(append(r.header, "Authorization: Bearer "...), key...), lineEnd...)
}

func ourGet(r *request, e *expectation, c call) {
	ourHead(r, "GET", "/v1/types/user/entries/", c.key)
	r.path = appendUID(r.path, c.account)
	e.begin(200)
	e.account("uid", c.account)
}

func ourFind(r *request, e *expectation, c call) {
	ourHead(r, "POST", "/v1/types/user/lookup", c.key)
	r.body = append(appendAddress(append(r.body, `{"field":"email","value":"`...), c.account), `"}`...)
	e.begin(200)
	e.account("uid", c.account)
}

func ourList(r *request, e *expectation, c call) {
	ourHead(r, "GET", "/v1/types/user/entries?limit=", c.key)
	r.path = appendCity(append(appendInt(r.path, pageSize), "&where=city:"...), c.account)
	e.begin(200)
	e.page(c)
}

func ourSession(r *request, e *expectation, c call) {
	ourHead(r, "POST", "/v1/session", c.key)
	r.body = append(append(append(r.body, `{"secret":"`...), c.session.secret...), `"}`...)
	e.begin(200)
	e.texts = append(e.texts, `"active":true`...)
	e.body(1)
	e.account("uid", c.session.account)
}

func ourForward(r *request, e *expectation, c call) {
	ourHead(r, "GET", "/v1/session/check", c.key)
	r.header = append(append(append(r.header, "Cookie: session="...), c.session.secret...), lineEnd...)
	e.begin(204)
	e.texts = append(appendUID(append(e.texts, "\r\nUserdb-Uid: "...), c.session.account), lineEnd...)
	e.head()
}

// ourSignIn gives each caller an origin of its own, from the addresses that RFC 2544 reserves for
// benchmarks.
func ourSignIn(r *request, e *expectation, c call) {
	ourHead(r, "POST", "/v1/types/user/login", c.key)
	r.body = appendAddress(append(r.body, `{"session":{},"identifier":"`...), c.account)
	r.body = appendInt(append(r.body, `","password":"`+password+`","origin":"198.18.`...), c.caller/256)
	r.body = append(appendInt(append(r.body, '.'), c.caller%256), `"}`...)
	e.begin(200)
	e.texts = append(e.texts, `"secret":"`...)
	e.body(1)
	e.account("uid", c.account)
}

func ourCreate(r *request, e *expectation, c call) {
	ourHead(r, "POST", "/v1/types/user/entries", c.key)
	r.body = append(newFields(append(r.body, `{"facets":{`...), c.fresh), `},"password":"`+password+`"}`...)
	e.begin(201)
	e.newAccount("uid", c.fresh)
}

// peerHead begins a request to the collection of users, with a token if there is one.
func peerHead(r *request, method, path, token string) {
	r.begin(method)
	r.path = append(append(r.path, "/api/collections/users/"...), path...)
	if token != "" {
		r.header = append(append(append(r.header, "Authorization: "...), token...), lineEnd...)
	}
}

func peerGet(r *request, e *expectation, c call) {
	peerHead(r, "GET", "records/", c.key)
	r.path = appendUID(r.path, c.account)
	e.begin(200)
	e.account("id", c.account)
}

func peerFind(r *request, e *expectation, c call) {
	peerHead(r, "GET", `records?perPage=1&skipTotal=1&filter=email%3D%22`, c.key)
	r.path = append(appendAddress(r.path, c.account), "%22"...)
	e.begin(200)
	e.account("id", c.account)
}

func peerList(r *request, e *expectation, c call) {
	peerHead(r, "GET", "records?perPage=", c.key)
	r.path = append(appendInt(r.path, pageSize), `&skipTotal=1&filter=city%3D%22`...)
	r.path = append(appendCity(r.path, c.account), "%22"...)
	e.begin(200)
	e.page(c)
}

func peerSession(r *request, e *expectation, c call) {
	peerHead(r, "POST", "auth-refresh", c.session.secret)
	e.begin(200)
	e.texts = append(e.texts, `"token":"ey`...)
	e.body(1)
	e.account("id", c.session.account)
}

func peerForward(r *request, e *expectation, c call) {
	peerHead(r, "GET", "records/", c.session.secret)
	r.path = append(appendUID(r.path, c.session.account), "?fields=id"...)
	e.begin(200)
	e.texts = append(appendUID(append(e.texts, `{"id":"`...), c.session.account), `"}`...)
	e.body(1)
}

func peerSignIn(r *request, e *expectation, c call) {
	peerHead(r, "POST", "auth-with-password", "")
	r.body = append(appendAddress(append(r.body, `{"identity":"`...), c.account), `","password":"`+password+`"}`...)
	e.begin(200)
	e.texts = append(e.texts, `"token":"ey`...)
	e.body(1)
	e.account("id", c.account)
}

func peerCreate(r *request, e *expectation, c call) {
	peerHead(r, "POST", "records", c.key)
	r.body = append(newFields(append(r.body, '{'), c.fresh), `,"password":"`+password+`","passwordConfirm":"`+password+`"}`...)
	e.begin(200)
	e.newAccount("id", c.fresh)
}
