package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

const loginPassword = "correct horse battery"

// loginStore has a user for each worker, so that throttling holds none of them back. Passwords are hashed by so
// many workers, 0: as many as the library takes by itself.
func (b *bench) loginStore(ctx context.Context, cost, n, workers int) (*userdb.DB, *userdb.Type, error) {
	s := schema.User()
	t := s.Types["user"]
	t.Password = &schema.Password{Cost: cost}
	s.Types["user"] = t
	db, err := userdb.Open(ctx, b.server.url()+"?pool_size=160", userdb.Options{Schema: s, HashWorkers: workers})
	if err != nil {
		return nil, nil, err
	}
	users, err := db.Type("user")
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		_, err := users.Create(ctx, userdb.NewEntry{UID: fmt.Sprint("login", i), Facets: schema.Texts("name", loginName(i)), Password: loginPassword})
		if err != nil {
			return nil, nil, err
		}
	}
	return db, users, nil
}

func loginName(i int) string { return fmt.Sprint("login user ", i) }

func (b *bench) login(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	cores := runtime.GOMAXPROCS(0)
	db, users, err := b.loginStore(ctx, 10, cores, 0)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	stored, err := bcrypt.GenerateFromPassword([]byte(loginPassword), 10)
	if err != nil {
		return outcome{}, err
	}
	slow := *b
	slow.per = max(b.per, 300*time.Millisecond)
	return slow.compare(ctx, cores, variant{"userdb", func(ctx context.Context, w, i int) error {
		_, err := users.Login(ctx, loginName(w), loginPassword, userdb.Attempt{})
		return err
	}}, variant{"bcrypt", func(ctx context.Context, w, i int) error {
		return bcrypt.CompareHashAndPassword(stored, []byte(loginPassword))
	}})
}

// failuresEach is how many wrong passwords nobody has to wait after.
const failuresEach = 9

// outsiders are those who cannot log in, by what stands before a name.
var outsiders = []struct{ what, before string }{
	{"wrong password", ""}, {"unknown", "no "}, {"no password", "bare "}, {"disabled", "banned "},
}

// loginAnswers compares what an attacker could measure. Everybody is failed at only a few times.
func (b *bench) loginAnswers(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	const people = 64
	db, users, err := b.loginStore(ctx, 10, people, 0)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	for i := range people {
		if err := addOutsiders(ctx, users, i); err != nil {
			return outcome{}, err
		}
	}
	var vs []variant
	for _, o := range outsiders {
		n := 0 // one worker
		vs = append(vs, variant{o.what, func(ctx context.Context, _, _ int) error {
			n++
			_, err := users.Login(ctx, o.before+loginName(n/failuresEach), "wrong", userdb.Attempt{})
			if errors.Is(err, userdb.ErrLogin) {
				return nil
			}
			return fmt.Errorf("%s, attempt %d: %w", o.what, n, err)
		}})
	}
	rs, err := interleave(ctx, b.server, 1, 25, max(b.per, 300*time.Millisecond), vs...)
	if err != nil {
		return outcome{}, err
	}
	least, most := rs[0].P50, rs[0].P50
	for _, r := range rs {
		least, most = min(least, r.P50), max(most, r.P50)
	}
	return outcome{ratio: most / least, variants: rs}, nil
}

// addOutsiders makes one entry without password, and one that is disabled.
func addOutsiders(ctx context.Context, users *userdb.Type, i int) error {
	_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "bare "+loginName(i))})
	if err != nil {
		return err
	}
	e, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "banned "+loginName(i)), Password: loginPassword})
	if err != nil {
		return err
	}
	return users.Disable(ctx, hints.Key(e.Key()))
}
