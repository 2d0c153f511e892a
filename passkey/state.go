package passkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// A state says what a challenge was made for. The browser keeps it, signed with a key derived from
// userdb.Options.Keys, so that the store need not.
type state struct {
	Challenge string `json:"c"` // in base64url, as in the answer
	For       string `json:"f,omitempty"`
	Handle    []byte `json:"h,omitempty"` // the user handle of a new passkey
	Name      string `json:"n,omitempty"` // of a new passkey, given by its owner
	Until     int64  `json:"u"`           // Unix time in milliseconds
}

// maxState limits the length of a state, in bytes.
const maxState = 1 << 10

// seal returns a state with its signature.
func (p *Passkeys) seal(s state) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	encoded := base64.RawURLEncoding.EncodeToString(text)
	return encoded + "." + base64.RawURLEncoding.EncodeToString(p.sign(p.keys()[0], encoded)), nil
}

// open returns the state that seal encoded as text. If text is anything else, or if the state has
// expired, the error is userdb.ErrLogin.
func (p *Passkeys) open(text string) (s state, err error) {
	encoded, signature, _ := strings.Cut(text, ".")
	given, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || len(text) > maxState {
		return state{}, userdb.ErrLogin
	}
	right := false
	for _, key := range p.keys() {
		right = hmac.Equal(given, p.sign(key, encoded)) || right
	}
	if !right {
		return state{}, userdb.ErrLogin
	}
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || view.Of(p.db).Now().UnixMilli() >= s.Until {
		return state{}, userdb.ErrLogin
	}
	return s, nil
}

func (p *Passkeys) keys() [][]byte { return view.HooksOf(p.db).DeriveKeys("passkey state") }

// sign returns the signature of a state, which is valid for one namespace, type, relying party and
// field.
func (p *Passkeys) sign(key []byte, encoded string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(p.scope + "\x00" + encoded))
	return mac.Sum(nil)
}

// stateCookie is the name of the cookie for a state. Browsers accept it only over https, from the
// host itself, and for all its paths.
const stateCookie = "__Host-passkey"

// SetState keeps the state of a challenge in a cookie, which State reads. Browsers refuse such a
// cookie from http://localhost, so pages there must send the state in another way.
func SetState(w http.ResponseWriter, c Challenge) {
	http.SetCookie(w, &http.Cookie{
		Name: stateCookie, Value: c.State, Path: "/", MaxAge: int(ChallengeLife.Seconds()), Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
}

// State returns the state that SetState kept, and removes it. It returns "" if there is none.
func State(w http.ResponseWriter, r *http.Request) string {
	c, err := r.Cookie(stateCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, &http.Cookie{Name: stateCookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return c.Value
}
