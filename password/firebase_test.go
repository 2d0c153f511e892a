package password

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

type firebaseAccount struct {
	SignerKey     string `json:"signer_key"`
	SaltSeparator string `json:"salt_separator"`
	Rounds        int
	MemCost       int `json:"mem_cost"`
	Salt          string
	Hash          string
	Password      string
}

func (a firebaseAccount) project() FirebaseScrypt {
	return FirebaseScrypt{SignerKey: a.SignerKey, SaltSeparator: a.SaltSeparator, Rounds: a.Rounds, MemCost: a.MemCost}
}

// firebaseAccounts reads testdata/firebase-scrypt.json, which names its sources.
func firebaseAccounts(t *testing.T) (all []firebaseAccount) {
	t.Helper()
	var sources []struct {
		Source, Licence string
		Accounts        []firebaseAccount
	}
	readJSON(t, "testdata/firebase-scrypt.json", &sources)
	for _, s := range sources {
		if s.Source == "" || s.Licence == "" {
			t.Fatal("a vector without its source")
		}
		all = append(all, s.Accounts...)
	}
	if len(all) < 4 {
		t.Fatalf("%d vectors, want at least 4", len(all))
	}
	return all
}

func TestFirebaseScrypt(t *testing.T) {
	h := cheap(t, pepperA)
	urlSafe := strings.NewReplacer("+", "-", "/", "_", "=", "")
	for _, a := range firebaseAccounts(t) {
		stored, err := a.project().Stored(a.Hash, a.Salt)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Verify(stored, a.Password); err != nil || got != (Result{true, renewAlgorithm}) {
			t.Errorf("%s: got %+v, %v; want OK and a reason to renew", stored, got, err)
		}
		for _, wrong := range []string{"", a.Password + "x", a.Password[1:]} {
			if got, err := h.Verify(stored, wrong); err != nil || got != (Result{}) {
				t.Errorf("%s, wrong password %q: got %+v, %v; want the zero Result", stored, wrong, got, err)
			}
		}
		if again, err := a.project().Stored(urlSafe.Replace(a.Hash), urlSafe.Replace(a.Salt)); err != nil || again != stored {
			t.Errorf("in the other alphabet: got %q, %v, want %q", again, err, stored)
		}
		signer, _ := base64.StdEncoding.DecodeString(a.SignerKey)
		if strings.Contains(stored, base64.RawStdEncoding.EncodeToString(signer)) {
			t.Errorf("%s holds the signer key", stored)
		}
	}
}

func TestFirebaseScryptErrors(t *testing.T) {
	good := firebaseAccounts(t)[0]
	for _, tt := range []struct {
		change func(*firebaseAccount)
		err    string
	}{
		{func(a *firebaseAccount) { a.SignerKey = "not base64!" }, "firebase-scrypt: the signer key is not base64"},
		{func(a *firebaseAccount) { a.SaltSeparator = "B" }, "firebase-scrypt: the salt separator is not base64"},
		{func(a *firebaseAccount) { a.Hash = a.Hash[:20] + "?" }, "firebase-scrypt: the hash is not base64"},
		{func(a *firebaseAccount) { a.Salt = "ä" }, "firebase-scrypt: the salt is not base64"},
		{func(a *firebaseAccount) { a.SignerKey = "" }, "firebase-scrypt: the hash has 64 bytes and the signer key 0"},
		{func(a *firebaseAccount) { a.Hash = "" }, "firebase-scrypt: the hash has 0 bytes and the signer key 64"},
		{func(a *firebaseAccount) { a.Hash, a.SignerKey = "AAAA", "AAAA" }, "firebase-scrypt: key in bytes: 3 is not between 16 and 128"},
		{func(a *firebaseAccount) { a.Salt, a.SaltSeparator = "", "" }, "Firebase's scrypt, but malformed"},
		{func(a *firebaseAccount) { a.MemCost = 0 }, "firebase-scrypt: mem_cost 0 or rounds 8 is less than 1"},
		{func(a *firebaseAccount) { a.Rounds = -8 }, "firebase-scrypt: mem_cost 14 or rounds -8 is less than 1"},
		{func(a *firebaseAccount) { a.MemCost = 21 }, "firebase-scrypt: ln: 21 is not between 1 and 20"},
		{func(a *firebaseAccount) { a.MemCost, a.Rounds = 18, 9 }, "firebase-scrypt: memory in bytes: 301989888 is not between 0 and 268435456"},
		{func(a *firebaseAccount) { a.Rounds = 1 << 40 }, "Firebase's scrypt, but malformed"},
	} {
		a := good
		tt.change(&a)
		stored, err := a.project().Stored(a.Hash, a.Salt)
		checkError(t, tt.err, err, "stored hash is not usable: "+tt.err)
		if stored != "" || !errors.Is(err, ErrHash) {
			t.Errorf("%s: Stored returns %q, %v; want ErrHash", tt.err, stored, err)
		}
	}
	noSeparator := good
	noSeparator.SaltSeparator = ""
	if _, err := noSeparator.project().Stored(good.Hash, good.Salt); err != nil {
		t.Errorf("without a separator: got %v, want no error", err)
	}
}

func TestFirebaseScryptHidesKeys(t *testing.T) {
	p := firebaseAccounts(t)[0].project()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const want = "password.FirebaseScrypt{Rounds: 8, MemCost: 14}"
	for _, got := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", p), fmt.Sprintf("%#v", p), p.LogValue().String(), string(text)} {
		if strings.Trim(got, `"`) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
