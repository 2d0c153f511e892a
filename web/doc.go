// Package web signs visitors in over net/http. It keeps a session in a cookie, guards handlers that
// need an entry or a tag, finds the visitor's address behind proxies, and lists what is wrong with
// a form. It needs no framework. Flows adds the pages that every site with accounts has, MailQueue
// sends their mails, and Limit limits what each visitor may do.
//
//	auth := web.Auth{Users: users, SignInPath: "/signin"}
//	mux.Handle("GET /account", auth.Require(account))
//	mux.Handle("/admin/", auth.RequireTag("admin", admin))
//	http.ListenAndServe(addr, http.NewCrossOriginProtection().Handler(mux))
//
// The cookie holds the secret of a session of package userdb. Every request looks that session up
// in the store, so no process accepts it after it has ended. Wrap all handlers in net/http's own
// protection, as above: it refuses requests from other sites.
package web
