package factor

import (
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/recordkey"
)

// An Accept describes a passkey's answer to accept without a ticket.
type Accept struct {
	PRK     recordkey.Key
	Hash    string    // of the challenge
	Until   time.Time // when the answer becomes too old to sign in
	Attempt string    // as in Try
	Factor  string    // the name of its member
	Counter uint32
	Origin  string
	Now     time.Time // zero: the server's clock
}

// MaxSpentAnswers limits the answers that a record remembers. When it is reached, further logins
// without a ticket must wait until an answer is forgotten.
const MaxSpentAnswers = 200

// SpentName returns the name of the member that marks the answer to a challenge as spent.
func SpentName(hash string) string { return "spent/" + hash }

// Args returns the arguments of accept.lua.
func (a Accept) Args() []string {
	return []string{
		arg.Time(a.Now), a.Hash, arg.Time(a.Until), a.Attempt, a.Factor, strconv.FormatUint(uint64(a.Counter), 10),
		strconv.Itoa(MaxSpentAnswers), recordkey.Escape(a.Origin), strconv.Itoa(maxOrigins),
	}
}

// ParseAccepted parses the reply of accept.lua. It returns how long to wait if the record remembers
// too many answers, and reports whether the passkey accepted the answer.
func ParseAccepted(texts []string) (wait time.Duration, accepted bool, err error) {
	switch {
	case len(texts) == 1 && (texts[0] == "ok" || texts[0] == "used"):
		return 0, texts[0] == "ok", nil
	case len(texts) == 2 && texts[0] == "full":
		left, err := strconv.ParseInt(texts[1], 10, 64)
		return max(time.Duration(left)*time.Millisecond, time.Second), false, err
	}
	return 0, false, errFactor
}

// Passkeys returns the names of the passkeys that a mark lists.
func (m Mark) Passkeys() (names []string) {
	for _, name := range m.Names() {
		if strings.HasPrefix(name, Passkey+"/") {
			names = append(names, name)
		}
	}
	return names
}

// The ID of a passkey begins with digestPart digits of its digest.
const digestPart = 32

// PasskeyID returns an ID for the passkey with a digest of 64 hexadecimal digits. The digest is a
// value of the entry, so the ID is enough to find it there, without reading the factor.
func PasskeyID(digest, random string) string { return digest[:digestPart] + random }

// IsOfDigest reports whether the name is that of a passkey with the digest.
func IsOfDigest(name, digest string) bool {
	id, is := strings.CutPrefix(name, Passkey+"/")
	return is && len(digest) == 2*digestPart && len(id) > digestPart && strings.HasPrefix(digest, id[:digestPart])
}
