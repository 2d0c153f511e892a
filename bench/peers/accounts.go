package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/crypto/bcrypt"
)

const (
	password = "correct horse battery" // of all accounts

	// passwordHash is the bcrypt hash of the password, at the cost that all products use. The same
	// text is loaded into each of them.
	passwordHash = "$2a$10$e0yfGGAUHDYHBQkexEpgUODAlTqJyB5zFvY3XTbI4BIF1w1THRerO"

	cities   = 100
	pageSize = 50
)

func appendInt(b []byte, i int) []byte { return strconv.AppendInt(b, int64(i), 10) }

func appendUID(b []byte, i int) []byte {
	const digits = 14 // PocketBase wants 15 characters
	b = append(b, 'u')
	for n := len(strconv.Itoa(i)); n < digits; n++ {
		b = append(b, '0')
	}
	return appendInt(b, i)
}

func appendAddress(b []byte, i int) []byte {
	return append(appendInt(append(b, "user"...), i), "@example.com"...)
}

func appendName(b []byte, i int) []byte { return appendInt(append(b, "user number "...), i) }

func appendNewAddress(b []byte, i int) []byte {
	return append(appendInt(append(b, "new"...), i), "@example.com"...)
}

func appendNewName(b []byte, i int) []byte { return appendInt(append(b, "new user "...), i) }

func appendNote(b []byte, i int) []byte { return appendInt(append(b, "note "...), i) }

func appendCity(b []byte, i int) []byte { return appendInt(append(b, "city"...), i%cities) }

// checkTime returns how many milliseconds of processor time one check of the password takes, or 0
// if passwordHash is not a hash of it.
func checkTime() float64 {
	const checks = 20
	before := ownCPU()
	for range checks {
		if bcrypt.CompareHashAndPassword([]byte(passwordHash), []byte(password)) != nil {
			return 0
		}
	}
	return (ownCPU() - before).Seconds() * 1e3 / checks
}

// inPage returns how many of the n accounts are on the first page of the city of account i.
func inPage(n, i int) int { return min(pageSize, (n-i%cities+cities-1)/cities) }

// writeAccounts writes n accounts to a file, as JSON lines that userdb imports.
func writeAccounts(path string, n int) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"facets":{"uid":%q,"email":%q,"name":%q,"city":%q},"password":%q}`+"\n",
			appendUID(nil, i), appendAddress(nil, i), appendName(nil, i), appendCity(nil, i), passwordHash)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
