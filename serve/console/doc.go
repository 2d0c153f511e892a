// Package console serves pages for operators: people who look after accounts without a terminal.
//
// Every page works without scripts; console.js only adds to it. Each request passes through guard,
// which sets headers and refuses forms submitted from other sites. Package web then identifies the
// operator. Finally, a handler reads or changes accounts through package userdb and executes a
// template of pages/. Long tasks run as jobs, which every process of the service can show.
package console
