// Package web signs visitors in over net/http: a session in a cookie, handlers that ask for an entry or a tag, the visitor's address
// behind proxies, and the problems of a form. It has no templates, and no framework.
//
//	auth := web.Auth{Users: users, SignInPath: "/signin"}
//	mux.Handle("GET /account", auth.Require(account))
//	mux.Handle("/admin/", auth.RequireTag("admin", admin))
//	http.ListenAndServe(addr, http.NewCrossOriginProtection().Handler(mux))
//
// The cookie holds the secret of a session of package userdb, which every request asks the store for: after a session was ended, no
// process accepts it. Requests of other sites are refused by net/http's own protection, around all handlers as above.
package web
