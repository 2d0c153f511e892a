package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// testCall is the call whose answers are listed below.
var testCall = call{n: 1000, account: 7, session: session{"secret7", 7}, fresh: 3, caller: 300, key: "k"}

const (
	ourAccount        = `{"uid":"u00000000000007","type":"user","rev":"5jSd","disabled":false,"verified":[],"facets":{"city":"city7","email":"user7@example.com","name":"user number 7"}}`
	pocketBaseAccount = `{"city":"city7","collectionId":"_pb_users_auth_","collectionName":"users","email":"user7@example.com","emailVisibility":false,"id":"u00000000000007","name":"user number 7","verified":false}`
	betterAuthAccount = `{"name":"user number 7","email":"user7@example.com","emailVerified":false,"image":null,"city":"city7","note":null,"id":"u00000000000007"}`
)

// pageOf returns a page with the ten accounts of the city of account 7: there are 1000 accounts in
// 100 cities.
func pageOf(before, account, after string) string {
	var all []string
	for i := 7; i < 1000; i += cities {
		all = append(all, strings.NewReplacer("00007", fmt.Sprintf("%05d", i), "user7@", fmt.Sprintf("user%d@", i), "number 7", fmt.Sprint("number ", i)).Replace(account))
	}
	return before + strings.Join(all, ",") + after
}

// rightAnswers holds each product's answers to testCall, by job.
var rightAnswers = map[string]map[string]answer{
	"userdb": {
		"get":     {200, nil, []byte(ourAccount)},
		"find":    {200, nil, []byte(ourAccount)},
		"list":    {200, nil, []byte(pageOf(`{"entries":[`, ourAccount, `],"next":null}`))},
		"session": {200, nil, []byte(`{"active":true,"entry":` + ourAccount + `,"session":{"id":"1U01"}}`)},
		"forward": {204, []byte("HTTP/1.1 204 No Content\r\nUserdb-Uid: u00000000000007\r\n"), nil},
		"sign-in": {200, nil, []byte(`{"entry":` + ourAccount + `,"session":{"secret":"s","id":"1U01"}}`)},
		"update":  {200, nil, []byte(strings.Replace(ourAccount, `"name"`, `"note":"note 3","name"`, 1))},
		"create":  {201, nil, []byte(`{"uid":"0395","type":"user","facets":{"city":"new","email":"new3@example.com","name":"new user 3"}}`)},
	},
	"pocketbase": {
		"get":     {200, nil, []byte(pocketBaseAccount)},
		"find":    {200, nil, []byte(`{"items":[` + pocketBaseAccount + `],"page":1}`)},
		"list":    {200, nil, []byte(pageOf(`{"items":[`, pocketBaseAccount, `],"page":1}`))},
		"session": {200, nil, []byte(`{"record":` + pocketBaseAccount + `,"token":"eyJh"}`)},
		"forward": {200, nil, []byte(`{"id":"u00000000000007"}`)},
		"sign-in": {200, nil, []byte(`{"record":` + pocketBaseAccount + `,"token":"eyJh"}`)},
		"update":  {200, nil, []byte(strings.Replace(pocketBaseAccount, `"name"`, `"note":"note 3","name"`, 1))},
		"create":  {200, nil, []byte(`{"city":"new","collectionId":"_pb","email":"new3@example.com","emailVisibility":false,"id":"zbwa","name":"new user 3"}`)},
	},
	"better-auth": {
		"get":     {200, nil, []byte(betterAuthAccount)},
		"find":    {200, nil, []byte(`{"users":[` + betterAuthAccount + `],"total":1,"limit":1}`)},
		"list":    {200, nil, []byte(pageOf(`{"users":[`, betterAuthAccount, `],"total":10,"limit":50}`))},
		"session": {200, nil, []byte(`{"session":{"token":"bfng","userId":"u00000000000007","id":"S7PE"},"user":` + betterAuthAccount + `}`)},
		"sign-in": {200, nil, []byte(`{"redirect":false,"token":"cuuZ","user":` + betterAuthAccount + `}`)},
		"update":  {200, nil, []byte(strings.Replace(betterAuthAccount, `"note":null`, `"note":"note 3"`, 1))},
		"create":  {200, nil, []byte(`{"user":{"name":"new user 3","email":"new3@example.com","role":"user","city":"new","note":null,"id":"CoJo"}}`)},
	},
}

// wrongAnswers lists changes that make a right answer wrong. singleAccount marks those that the
// check of a page does not notice, because it does not compare IDs.
var wrongAnswers = []struct {
	name          string
	singleAccount bool
	change        func(a answer) answer
}{
	{"another successful status", false, func(a answer) answer { a.status = 202; return a }},
	{"an error", false, func(a answer) answer { a.status = 503; return a }},
	{"an empty answer", false, func(a answer) answer { a.head, a.body = nil, nil; return a }},
	{"an empty object", false, func(a answer) answer { a.head, a.body = nil, []byte("{}"); return a }},
	{"an empty list", false, func(a answer) answer { a.head, a.body = nil, []byte(`{"items":[],"entries":[]}`); return a }},
	{"an answer about another account", false, func(a answer) answer { return replace(a, "7", "8", "new3", "new4") }},
	{"an id with one more character", true, func(a answer) answer { return replace(a, "00007", "000071", "new3", "new31") }},
	{"an address that continues after the right one", false, func(a answer) answer { return replace(a, "00007", "", "@example.com", "@example.com.example") }},
	{"the first half of the answer", false, func(a answer) answer { a.head, a.body = a.head[:len(a.head)/2], a.body[:len(a.body)/2]; return a }},
	{"the answer twice", false, func(a answer) answer {
		a.head, a.body = append(a.head, a.head...), append(a.body, a.body...)
		return a
	}},
}

func replace(a answer, pairs ...string) answer {
	r := strings.NewReplacer(pairs...)
	a.head, a.body = []byte(r.Replace(string(a.head))), []byte(r.Replace(string(a.body)))
	return a
}

// TestCheck checks that each job accepts the right answer and refuses the wrong ones.
func TestCheck(t *testing.T) {
	for _, j := range jobs {
		operations := maps.Clone(j.theirs)
		operations["userdb"] = j.ours
		for product, v := range operations {
			var r request
			var e expectation
			v.ask(&r, &e, testCall)
			right := rightAnswers[product][j.name]
			if err := e.check(right); err != nil {
				t.Errorf("%s, %s: the right answer is refused: %v", product, j.name, err)
			}
			for _, w := range wrongAnswers {
				if w.singleAccount && j.name == "list" {
					continue
				}
				a := right
				a.head, a.body = append([]byte(nil), a.head...), append([]byte(nil), a.body...)
				if err := e.check(w.change(a)); err == nil {
					t.Errorf("%s, %s: %s is accepted", product, j.name, w.name)
				}
			}
		}
	}
}

// TestCheckShowsNoSecret checks that an error quotes the body of a refusal and no other body.
func TestCheckShowsNoSecret(t *testing.T) {
	var e expectation
	e.begin(201)
	if err := e.check(answer{200, nil, []byte(`{"secret":"hidden"}`)}); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v, want an error without the body", err)
	}
	e.begin(200)
	if err := e.check(answer{503, nil, []byte(`{"code":"busy"}`)}); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("got %v, want an error with the body of the refusal", err)
	}
}

// TestRoundFails checks that a server that answers one request in ten wrongly gets no figures.
func TestRoundFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong func(w http.ResponseWriter)
		want  string
	}{
		{"no wrong answer", nil, ""},
		{"a wrong status", func(w http.ResponseWriter) { w.WriteHeader(500) }, "status 500"},
		{"a wrong body", func(w http.ResponseWriter) { fmt.Fprint(w, strings.ReplaceAll(ourAccount, "7", "8")) }, "0 times, want 1"},
	} {
		var n atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%10 == 0 && c.wrong != nil {
				c.wrong(w)
				return
			}
			uid := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			i, _ := strconv.Atoi(uid[1:])
			fmt.Fprintf(w, `{"uid":%q,"facets":{"email":"user%d@example.com","name":"user number %d","city":"city%d"}}`, uid, i, i, i)
		}))
		defer server.Close()
		s := &service{name: "test", addr: strings.TrimPrefix(server.URL, "http://"), pids: []int{os.Getpid()}, sessions: make([]session, sessions)}
		d, err := newSide(s, jobs[0].ours, 10, 1, time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		var got round
		for err == nil && n.Load() < 10 { // on a busy machine, one round may be too short
			got, err = d.round(d.callers, 300*time.Millisecond)
		}
		if c.want == "" {
			if err != nil || len(got.latencies) == 0 {
				t.Errorf("%s: got %d operations, %v; want some and no error", c.name, len(got.latencies), err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// TestCompareIsSlow checks that a row fails with errSlow if a server does not answer in time.
func TestCompareIsSlow(t *testing.T) {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer server.Close()
	defer close(over)
	s := &service{name: "pocketbase", addr: strings.TrimPrefix(server.URL, "http://"), pids: []int{os.Getpid()}, sessions: make([]session, sessions)}
	_, err := compare(context.Background(), settings{seconds: 100, limit: 100 * time.Millisecond}, s, s, jobs[0], 10, 2)
	const want = "slower than the limit for a row, which is 100ms: pocketbase did 0 operations in 0.0 s, pocketbase did 0 operations in 0.0 s"
	if !errors.Is(err, errSlow) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestInPage(t *testing.T) {
	for _, c := range []struct{ n, account, want int }{
		{10_000, 3, 50}, {100_000, 99_999, 50}, {1000, 7, 10}, {1001, 0, 11}, {1001, 1, 10}, {30, 29, 1},
	} {
		if got := inPage(c.n, c.account); got != c.want {
			t.Errorf("inPage(%d, %d) = %d, want %d", c.n, c.account, got, c.want)
		}
	}
}
