package testdb

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Mark is part of every text that the verbs pass to a store, apart from digests, generated secrets
// and names in the schema. Nothing that observes the store may show it.
const Mark = "marked"

const (
	markedUID      = "marked0uid"
	markedEmail    = "marked@marked.org"
	markedName     = "Marked Mann"
	markedPassword = "marked horse battery"
	markedOther    = "marked horse stable"
)

// MarkedSchema returns a schema in which all verbs work.
func MarkedSchema() schema.Schema {
	s := DefaultSchema()
	user := s.Types["user"]
	name := user.Fields["name"]
	name.Hold, user.Retire, user.Factors = schema.Day, true, true
	user.Fields["name"] = name
	user.Fields["links"] = schema.Field{Role: schema.RoleSecondary, Many: 5, Typed: new(false)}
	user.Fields["passkeys"] = schema.Field{Role: schema.RoleSecondary, Many: 8, Typed: new(false)}
	user.Tertiary["settings"] = schema.Tertiary{Kind: "hash"}
	user.Tertiary["bio"] = schema.Tertiary{Kind: "string"}
	user.Tertiary["scores"] = schema.Tertiary{Kind: "zset"}
	s.Types["user"] = user
	return s
}

// MarkedKeys returns Options.Keys with which all verbs work.
func MarkedKeys() [][]byte { return [][]byte{[]byte("marked key of thirty-two bytes..")} }

// A Verb calls one method of a DB, a Type or a tertiary record. It first calls the methods on which
// that one depends.
type Verb struct {
	Name string // of the method, as observers see it
	Do   func(ctx context.Context, db *userdb.DB, users *userdb.Type) error
}

// AllVerbs returns all verbs. Called in this order on an empty store, each of them succeeds. There
// is one for every method that takes a context and for every listing.
func AllVerbs() []Verb {
	h, from := hints.UID(markedUID), userdb.Attempt{Origin: "marked origin"}
	return slices.Concat(
		entryVerbs(h), passwordVerbs(h, from), tokenVerbs(h), sessionVerbs(h, from), linkVerbs(h, from), factorVerbs(h, from),
		passkeyVerbs(h, from), visitorVerbs(from), tertiaryVerbs(h), deleteVerbs(h),
	)
}

func entryVerbs(h hints.Hint) []Verb {
	return []Verb{
		{"Ping", func(ctx context.Context, db *userdb.DB, _ *userdb.Type) error { return db.Ping(ctx) }},
		{"Create", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, err := users.Create(ctx, userdb.NewEntry{
				UID: markedUID, Password: markedPassword, Tags: []string{"marked tag"},
				Facets: schema.Texts("email", markedEmail, "name", markedName, "motto", "marked motto", "job", "marked job"),
			})
			return err
		}},
		{"CreateOnce", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.CreateOnce(ctx, "marked request", userdb.NewEntry{Facets: schema.Texts("motto", "marked motto")}))
		}},
		{"Admit", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return users.Admit(ctx, userdb.Limit{Name: "marked limit", Max: 10, Window: time.Hour}, "marked visitor")
		}},
		{"History", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, err := users.History(ctx, h)
			if errors.Is(err, userdb.ErrNoHistory) {
				err = nil
			}
			return err
		}},
		{"Events", func(ctx context.Context, db *userdb.DB, _ *userdb.Type) error {
			return second(db.Events(ctx, userdb.EventQuery{}))
		}},
		{"Find", func(ctx context.Context, db *userdb.DB, users *userdb.Type) error {
			return second(db.Find(ctx, hints.Key(first(users.Find(ctx, hints.Any(markedEmail))).Key())))
		}},
		{"FindExhaustive", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.FindExhaustive(ctx, hints.Any(markedName)))
		}},
		{"Exists", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.Exists(ctx, hints.Field("email", markedEmail)))
		}},
		{"FindAll", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return firstError(users.FindAll(ctx, h))
		}},
		{"All", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return firstError(users.All(ctx, userdb.Query{Where: schema.Texts("job", "marked job"), Tags: []string{"marked tag"}}))
		}},
		{"Page", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.Page(ctx, userdb.Query{Where: schema.Texts("job", "marked job")}))
		}},
		{"Count", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.Count(ctx, userdb.Query{Tags: []string{"marked tag"}}))
		}},
		{"Update", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.Update(ctx, h, func(e *userdb.Entry) error { e.Put("motto", schema.Text("marked again")); return nil }))
		}},
		{"Save", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			e := first(users.Find(ctx, h))
			e.Put("motto", schema.Text("marked and saved"))
			return second(users.Save(ctx, e))
		}},
		{"Check", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			e := first(users.Find(ctx, h))
			e.Put("motto", schema.Text("marked and checked"))
			return users.Check(ctx, e)
		}},
	}
}

func passwordVerbs(h hints.Hint, from userdb.Attempt) []Verb {
	return []Verb{
		{"Login", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.Login(ctx, markedEmail, markedPassword, from))
		}},
		{"SetPassword", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.SetPassword(ctx, h, markedOther))
		}},
		{"ChangePassword", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.ChangePassword(ctx, h, markedOther, markedPassword, from))
		}},
		{"Disable", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error { return users.Disable(ctx, h) }},
		{"ResetThrottle", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error { return users.ResetThrottle(ctx, h) }},
		{"Enable", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error { return users.Enable(ctx, h) }},
	}
}

func tokenVerbs(h hints.Hint) []Verb {
	return []Verb{
		{"Issue", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.Issue(ctx, h, markedToken))
		}},
		{"IssueFor", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return third(users.IssueFor(ctx, h, "email", markedToken))
		}},
		{"Peek", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return third(users.Peek(ctx, markedToken.Purpose, first(users.Issue(ctx, h, markedToken))))
		}},
		{"Redeem", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return third(users.Redeem(ctx, markedToken.Purpose, first(users.Issue(ctx, h, markedToken))))
		}},
		{"ResetPassword", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.ResetPassword(ctx, markedToken.Purpose, first(users.Issue(ctx, h, markedToken)), markedOther))
		}},
	}
}

// deleteVerbs returns the verb that deletes the entry, and those for the values and UIDs that a
// deleted entry leaves.
func deleteVerbs(h hints.Hint) []Verb {
	return []Verb{
		{"Delete", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error { return users.Delete(ctx, h) }},
		{"RetiredUIDs", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			for _, err := range users.RetiredUIDs(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"RetiredPage", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return third(users.RetiredPage(ctx, "", 1))
		}},
		{"ForgetUID", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return users.ForgetUID(ctx, markedUID)
		}},
		{"FindHeld", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.FindHeld(ctx, "name", markedName))
		}},
		{"ReleaseHeld", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return users.ReleaseHeld(ctx, "name", markedName)
		}},
		{"Former", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			e, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "marked former")})
			if err != nil {
				return err
			}
			e.Put("name", schema.Text("marked later"))
			if _, err := users.Save(ctx, e); err != nil {
				return err
			}
			_, err = users.Former(ctx, "name", "marked former")
			return err
		}},
	}
}

func sessionVerbs(h hints.Hint, from userdb.Attempt) []Verb {
	begin := func(ctx context.Context, users *userdb.Type) (userdb.Session, string, error) {
		return users.StartSession(ctx, first(users.Find(ctx, h)), userdb.SessionOptions{Origin: "marked origin", Agent: "marked agent"})
	}
	return []Verb{
		{"StartSession", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error { return third(begin(ctx, users)) }},
		{"Session", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, secret, _ := begin(ctx, users)
			return third(users.Session(ctx, secret))
		}},
		{"VerifySession", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, secret, _ := begin(ctx, users)
			return third(users.VerifySession(ctx, secret, markedOther, from))
		}},
		{"LoginStatus", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.LoginStatus(ctx, h))
		}},
		{"Sessions", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return firstError(users.Sessions(ctx, h))
		}},
		{"EndSession", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, secret, _ := begin(ctx, users)
			return users.EndSession(ctx, secret)
		}},
		{"EndSessionID", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			s, _, _ := begin(ctx, users)
			return users.EndSessionID(ctx, h, s.ID)
		}},
		{"RedeemSession", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, _, _, err := users.RedeemSession(ctx, markedToken.Purpose, first(users.Issue(ctx, h, markedToken)), userdb.SessionOptions{})
			return err
		}},
		{"EndSessions", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.EndSessions(ctx, h))
		}},
	}
}

// linkVerbs returns the verbs for links with other providers.
func linkVerbs(h hints.Hint, from userdb.Attempt) []Verb {
	link := userdb.Link{Field: "links", Identity: "marked identity", Label: "marked provider"}
	begin := func(ctx context.Context, users *userdb.Type) string {
		_, secret, err := users.StartSession(ctx, first(users.Find(ctx, h)), userdb.SessionOptions{})
		return first(secret, err)
	}
	return []Verb{
		{"LinkIdentity", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.LinkIdentity(ctx, begin(ctx, users), link))
		}},
		{"LoginLinked", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.LoginLinked(ctx, link, from))
		}},
		{"UnlinkIdentity", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			_, _, _, err := users.UnlinkIdentity(ctx, begin(ctx, users), link, userdb.UnlinkOptions{})
			return err
		}},
		{"Spend", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			hash := sha256.Sum256([]byte("marked" + rand.Text()))
			return users.Spend(ctx, hex.EncodeToString(hash[:]), time.Hour)
		}},
	}
}

// factorVerbs returns the verbs for second factors. Before and after each, the entry has no factor.
func factorVerbs(h hints.Hint, from userdb.Attempt) []Verb {
	type enrolled struct {
		session string // on level 2
		id      string // of the factor
		codes   []string
	}
	begin := func(ctx context.Context, users *userdb.Type) (session string, e userdb.TOTPEnrolment, code string) {
		_, session, _ = users.StartSession(ctx, first(users.Find(ctx, h)), userdb.SessionOptions{})
		e = first(users.EnrolTOTP(ctx, session, userdb.TOTPOptions{Name: "marked app", Issuer: "marked issuer"}))
		secret := first(base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(e.Secret))
		return session, e, totp.Code(secret, totp.Step(time.Now()))
	}
	with := func(do func(ctx context.Context, users *userdb.Type, f enrolled) error) func(context.Context, *userdb.DB, *userdb.Type) error {
		return func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			session, e, code := begin(ctx, users)
			c, err := users.ConfirmTOTP(ctx, session, e.ID, code, userdb.SessionOptions{})
			if err != nil {
				return err
			}
			err = do(ctx, users, enrolled{c.Secret, e.ID, c.RecoveryCodes})
			return errors.Join(err, second(users.ResetFactors(ctx, h)))
		}
	}
	return []Verb{
		{"EnrolTOTP", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			if _, e, _ := begin(ctx, users); e.ID == "" {
				return errors.New("marked enrolment failed")
			}
			return nil
		}},
		{"ConfirmTOTP", with(func(context.Context, *userdb.Type, enrolled) error { return nil })},
		{"Factors", with(func(ctx context.Context, users *userdb.Type, _ enrolled) error { return second(users.Factors(ctx, h)) })},
		{"Prove", with(func(ctx context.Context, users *userdb.Type, f enrolled) error {
			_, err := users.Login(ctx, markedEmail, markedOther, from)
			refused, ok := errors.AsType[*userdb.FactorError](err)
			if !ok {
				return err
			}
			return second(users.Prove(ctx, refused.Ticket, userdb.RecoveryCode(f.codes[0]), from))
		})},
		{"RaiseSession", with(func(ctx context.Context, users *userdb.Type, f enrolled) error {
			_, _, _, err := users.RaiseSession(ctx, f.session, userdb.RecoveryCode(f.codes[0]), userdb.SessionOptions{})
			return err
		})},
		{"ReplaceRecoveryCodes", with(func(ctx context.Context, users *userdb.Type, f enrolled) error {
			return second(users.ReplaceRecoveryCodes(ctx, f.session))
		})},
		{"ResetRecoveryCodes", with(func(ctx context.Context, users *userdb.Type, _ enrolled) error {
			return second(users.ResetRecoveryCodes(ctx, h))
		})},
		{"RotateKeys", with(func(ctx context.Context, users *userdb.Type, _ enrolled) error { return second(users.RotateKeys(ctx)) })},
		{"RemoveFactor", with(func(ctx context.Context, users *userdb.Type, f enrolled) error {
			return second(users.RemoveFactor(ctx, f.session, f.id, userdb.SessionOptions{}))
		})},
		{"ResetFactors", with(func(context.Context, *userdb.Type, enrolled) error { return nil })},
	}
}

// passkeyVerbs returns the verbs for passkeys. They call the methods as package passkey does.
func passkeyVerbs(h hints.Hint, from userdb.Attempt) []Verb {
	digest := strings.Repeat("0123456789abcdef", 4)
	begin := func(ctx context.Context, users *userdb.Type) (session string) {
		_, session, _ = users.StartSession(ctx, first(users.Find(ctx, h)), userdb.SessionOptions{})
		return session
	}
	with := func(do func(ctx context.Context, users *userdb.Type) error) func(context.Context, *userdb.DB, *userdb.Type) error {
		return func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			session := begin(ctx, users)
			_, err := users.AddPasskey(ctx, session, passkeys.Credential{
				Field: "passkeys", Digest: digest, Name: "marked key", For: passkeys.Binding(passkeys.ForRegister, session),
				Stored: []byte("marked credential"),
			}, userdb.SessionOptions{})
			if err != nil {
				return err
			}
			return errors.Join(do(ctx, users), second(users.ResetFactors(ctx, h)))
		}
	}
	return []Verb{
		{"BeginPasskey", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return third(users.BeginPasskey(ctx, begin(ctx, users), "passkeys"))
		}},
		{"AddPasskey", with(func(context.Context, *userdb.Type) error { return nil })},
		{"LoginPasskey", with(func(ctx context.Context, users *userdb.Type) error {
			return second(users.LoginPasskey(ctx, userdb.PasskeyProof(passkeys.Answer{
				Field: "passkeys", Digest: digest, Challenge: "marked", Until: time.Now().Add(time.Minute),
				Verify: func([]byte) (uint32, error) { return 0, nil },
			}), from))
		})},
	}
}

func visitorVerbs(from userdb.Attempt) []Verb {
	invite := func(ctx context.Context, users *userdb.Type, local string) (userdb.Invitation, error) {
		return users.Invite(ctx, "email", local+"@marked.org", markedToken, from)
	}
	return []Verb{
		{"IssueForVisitor", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return third(users.IssueForVisitor(ctx, "email", markedEmail, markedToken, from))
		}},
		{"Invite", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(invite(ctx, users, "marked.one"))
		}},
		{"PeekInvitation", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			return second(users.PeekInvitation(ctx, first(invite(ctx, users, "marked.two")).Secret))
		}},
		{"AcceptInvitation", func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error {
			i := first(invite(ctx, users, "marked.three"))
			return second(users.AcceptInvitation(ctx, i.Secret, userdb.NewEntry{Password: markedPassword}))
		}},
	}
}

var markedToken = userdb.Token{Purpose: "marked purpose", Value: "marked value"}

// first returns v. A verb uses it for calls on which its own call depends: if one of them fails,
// the verb goes on with a zero value.
func first[T any](v T, _ error) T { return v }

func tertiaryVerbs(h hints.Hint) []Verb {
	const item = "marked item"
	var all []Verb
	add := func(name string, do func(ctx context.Context, users *userdb.Type) error) {
		all = append(all, Verb{name, func(ctx context.Context, _ *userdb.DB, users *userdb.Type) error { return do(ctx, users) }})
	}
	add("Set.Add", func(ctx context.Context, u *userdb.Type) error { return second(u.Tags(h).Add(ctx, item)) })
	add("Set.Has", func(ctx context.Context, u *userdb.Type) error { return second(u.Tags(h).Has(ctx, item)) })
	add("Set.Members", func(ctx context.Context, u *userdb.Type) error { return second(u.Tags(h).Members(ctx)) })
	add("Set.Len", func(ctx context.Context, u *userdb.Type) error { return second(u.Tags(h).Len(ctx)) })
	add("Set.Replace", func(ctx context.Context, u *userdb.Type) error { return u.Tags(h).Replace(ctx, item) })
	add("Set.Remove", func(ctx context.Context, u *userdb.Type) error { return second(u.Tags(h).Remove(ctx, item)) })
	add("List.Append", func(ctx context.Context, u *userdb.Type) error {
		return second(u.List(h, "notes").Append(ctx, item, item))
	})
	add("List.Prepend", func(ctx context.Context, u *userdb.Type) error {
		return second(u.List(h, "notes").Prepend(ctx, item, item))
	})
	add("List.PopFirst", func(ctx context.Context, u *userdb.Type) error { return third(u.List(h, "notes").PopFirst(ctx)) })
	add("List.PopLast", func(ctx context.Context, u *userdb.Type) error { return third(u.List(h, "notes").PopLast(ctx)) })
	add("List.Items", func(ctx context.Context, u *userdb.Type) error { return second(u.List(h, "notes").Items(ctx, 0, -1)) })
	add("List.Len", func(ctx context.Context, u *userdb.Type) error { return second(u.List(h, "notes").Len(ctx)) })
	add("List.Remove", func(ctx context.Context, u *userdb.Type) error { return second(u.List(h, "notes").Remove(ctx, item)) })
	add("Hash.Put", func(ctx context.Context, u *userdb.Type) error { return u.Hash(h, "settings").Put(ctx, item, item) })
	add("Hash.Get", func(ctx context.Context, u *userdb.Type) error { return third(u.Hash(h, "settings").Get(ctx, item)) })
	add("Hash.All", func(ctx context.Context, u *userdb.Type) error { return second(u.Hash(h, "settings").All(ctx)) })
	add("Hash.Len", func(ctx context.Context, u *userdb.Type) error { return second(u.Hash(h, "settings").Len(ctx)) })
	add("Hash.Remove", func(ctx context.Context, u *userdb.Type) error {
		return second(u.Hash(h, "settings").Remove(ctx, item))
	})
	add("String.Put", func(ctx context.Context, u *userdb.Type) error { return u.String(h, "bio").Put(ctx, item) })
	add("String.Get", func(ctx context.Context, u *userdb.Type) error { return third(u.String(h, "bio").Get(ctx)) })
	add("String.Remove", func(ctx context.Context, u *userdb.Type) error { return second(u.String(h, "bio").Remove(ctx)) })
	add("SortedSet.Put", func(ctx context.Context, u *userdb.Type) error { return u.SortedSet(h, "scores").Put(ctx, 1, item) })
	add("SortedSet.Increment", func(ctx context.Context, u *userdb.Type) error {
		return second(u.SortedSet(h, "scores").Increment(ctx, 1, item))
	})
	add("SortedSet.Score", func(ctx context.Context, u *userdb.Type) error {
		return third(u.SortedSet(h, "scores").Score(ctx, item))
	})
	add("SortedSet.Range", func(ctx context.Context, u *userdb.Type) error {
		return second(u.SortedSet(h, "scores").Range(ctx, 0, -1))
	})
	add("SortedSet.Between", func(ctx context.Context, u *userdb.Type) error {
		return second(u.SortedSet(h, "scores").Between(ctx, 0, 9))
	})
	add("SortedSet.Len", func(ctx context.Context, u *userdb.Type) error { return second(u.SortedSet(h, "scores").Len(ctx)) })
	add("SortedSet.Remove", func(ctx context.Context, u *userdb.Type) error {
		return second(u.SortedSet(h, "scores").Remove(ctx, item))
	})
	return all
}

// CallAll calls all verbs with marked texts on a store with MarkedSchema. In the first round they
// succeed. In the second round most of them fail, because the entry is gone. Finally it makes some
// calls that are refused for other reasons. It returns the errors of the first round, and an error
// if a call that must be refused succeeds.
func CallAll(ctx context.Context, db *userdb.DB) error {
	users, err := db.Type("user")
	if err != nil {
		return err
	}
	verbs := AllVerbs()
	for _, v := range verbs {
		if failed := v.Do(ctx, db, users); failed != nil {
			err = errors.Join(err, errors.New(v.Name+": "+failed.Error()))
		}
	}
	for _, v := range verbs {
		if v.Name != "Create" {
			_ = v.Do(ctx, db, users)
		}
	}
	n := userdb.NewEntry{Facets: schema.Texts("email", markedEmail, "name", "\x00 marked")}
	for _, refused := range []error{
		second(users.Create(ctx, n)),
		second(users.Find(ctx, hints.Field("marked field", markedEmail))),
		second(users.Find(ctx, hints.Key(markedKey()))),
		second(users.Tags(hints.UID(markedUID)).Add(ctx, Mark)),
		second(users.Set(hints.UID(markedUID), "marked set").Add(ctx, Mark)),
		second(users.SetPassword(ctx, hints.UID(markedUID), Mark)),
		second(users.Page(ctx, userdb.Query{After: "marked cursor"})),
	} {
		if refused == nil {
			err = errors.Join(err, errors.New("a call that must be refused succeeded"))
		}
	}
	return err
}

// markedKey returns a key of a type that does not exist.
func markedKey() recordkey.Key { return first(recordkey.PRK("marked", "marked", "marked")) }

// second and third return the error of a call with two or three results.

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

// firstError returns the error with which a listing begins, or nil.
func firstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		return err
	}
	return nil
}
