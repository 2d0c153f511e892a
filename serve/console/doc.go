// Package console is pages for operators: people who look after accounts, and need no terminal for it.
//
// Everything works without scripts; console.js only adds to it. Each request goes one way: guard (headers, forms of other sites),
// then who the operator is (package web), then a handler, which reads or changes accounts by package userdb and shows a template of
// pages/. What takes long runs as a job, which any process of the service shows.
package console
