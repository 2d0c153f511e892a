package main

import (
	"bytes"
	"fmt"
)

// An expectation describes the answer that one request must get: its status, and how often it
// contains certain texts. An answer that differs fails the row.
type expectation struct {
	status int
	texts  []byte // one after the other
	parts  []part
}

// A part is one of the texts.
type part struct {
	end    int // its end in texts
	times  int
	inHead bool
}

// begin empties the expectation.
func (e *expectation) begin(status int) {
	e.status, e.texts, e.parts = status, e.texts[:0], e.parts[:0]
}

// body expects that the text appended to texts since the last part occurs that many times in the
// body.
func (e *expectation) body(times int) {
	e.parts = append(e.parts, part{end: len(e.texts), times: times})
}

// head expects that the text appended to texts since the last part occurs once in the head.
func (e *expectation) head() {
	e.parts = append(e.parts, part{end: len(e.texts), times: 1, inHead: true})
}

// once expects text once in the body.
func (e *expectation) once(text string) {
	e.texts = append(e.texts, text...)
	e.body(1)
}

// field expects a field of an object in the body, whose value is what add appends for account i.
func (e *expectation) field(name string, add func([]byte, int) []byte, i int) {
	e.texts = append(append(append(e.texts, '"'), name...), `":"`...)
	e.texts = append(add(e.texts, i), '"')
	e.body(1)
}

// account expects the four fields of account i once in the body, and no other address. id is the
// name of the field in which the product has the id.
func (e *expectation) account(id string, i int) {
	e.field(id, appendUID, i)
	e.field("email", appendAddress, i)
	e.field("name", appendName, i)
	e.field("city", appendCity, i)
	e.once(`"email":`)
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

// newAccount expects the body to have an id, and the address and name of the new account with a
// number.
func (e *expectation) newAccount(id string, number int) {
	e.texts = append(append(append(e.texts, '"'), id...), `":"`...)
	e.body(1)
	e.field("email", appendNewAddress, number)
	e.field("name", appendNewName, number)
}

// check returns nil if the answer is as expected. The error quotes only the bodies of refusals,
// because other bodies hold secrets.
func (e *expectation) check(a answer) error {
	if a.status != e.status {
		body := a.body[:min(len(a.body), 200)]
		if a.status < 400 {
			body = nil
		}
		return fmt.Errorf("status %d, want %d: %s", a.status, e.status, body)
	}
	from := 0
	for _, p := range e.parts {
		text, in := e.texts[from:p.end], a.body
		if p.inHead {
			in = a.head
		}
		if n := bytes.Count(in, text); n != p.times {
			return fmt.Errorf("status %d with %q %d times, want %d", a.status, text, n, p.times)
		}
		from = p.end
	}
	return nil
}
