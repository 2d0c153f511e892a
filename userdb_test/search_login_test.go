package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A deed is a verb: "login P", "session P", which is a login and a session, "change P Q", "create P name".
type deed string

// A done deed, and between which steps it was done.
type done struct {
	deed
	who        int
	begin, end int
	err        error
	entry      userdb.Entry
	secret     string // of a session that began
}

// A standing is an entry as it was after a step.
type standing struct {
	live, disabled             bool
	hash, name, changed, owner string // owner is the password that was set last
	rev                        string
	fields                     map[string]string
	by                         int // the player of the step
}

// good reports whether a visitor may log in.
func (s standing) good(pw, name string) bool {
	return s.live && !s.disabled && s.owner == pw && s.name == name
}

// A drama is one play of deeds at one entry.
type drama struct {
	*stageOfLogins
	*play
	uid     string
	doing   map[int]deed
	began   map[int]standing // by player, as the deed began
	tried   map[int]bool     // by player: it tried to write a hash
	history []standing
	done    []done
	wrong   string
}

// A stageOfLogins is the store of many plays.
type stageOfLogins struct {
	t     *testing.T
	users *userdb.Type
	raw   redis.UniversalClient
	hash  string // of P, that an entry begins with
	cast  []string
	fits  map[string]bool
	now   *drama
}

func newStageOfLogins(t *testing.T, engine, hash string, cast []string) (*stageOfLogins, *userdb.DB) {
	var db *userdb.DB
	var err error
	switch o := (userdb.Options{HashWorkers: 8}); engine {
	case "cluster":
		db = clusterOfOne(t, o)
	default:
		db, err = userdb.Open(t.Context(), "memory:", o)
		must(t, err)
	}
	s := &stageOfLogins{t: t, users: typeOf(t, db, "user"), raw: clientOf(db), hash: hash, cast: cast, fits: map[string]bool{}}
	s.raw.AddHook(stagehand{})
	_, err = s.users.Create(t.Context(), userdb.NewEntry{UID: "first", Facets: schema.Texts("name", "first"), Password: "Ppassword"})
	must(t, err)
	_, err = s.users.Login(t.Context(), "first", "Ppassword", userdb.Attempt{}) // so that what is made once is made
	must(t, err)
	return s, db
}

// passwordOf is the password that a letter stands for.
func passwordOf(letter string) string { return letter + "password" }

// play begins a play at an entry of its own.
func (s *stageOfLogins) play(p *play) {
	d := &drama{stageOfLogins: s, play: p, uid: fmt.Sprint("uid", p.number), doing: map[int]deed{}, began: map[int]standing{}, tried: map[int]bool{}}
	s.now = d
	_, err := s.users.Create(s.t.Context(), userdb.NewEntry{UID: d.uid, Facets: schema.Texts("name", d.name("name"))})
	must(s.t, err)
	changed := time.Now().UTC().Format(time.RFC3339)
	must(s.t, s.raw.HSet(s.t.Context(), "user/uid:"+d.uid, "password", s.hash, "~passwd", changed).Err())
	d.history = []standing{{owner: passwordOf("P")}}
	d.history = []standing{d.look(-1)}
	p.watch = func(who *player) { d.history = append(d.history, d.look(who.id)) }
	for _, deeds := range s.cast {
		p.cast(func(ctx context.Context, who *player) {
			for text := range strings.SplitSeq(deeds, ", ") {
				p.mu.Lock()
				d.doing[who.id], d.began[who.id], d.tried[who.id] = deed(text), d.history[p.steps], false
				begin := p.steps
				p.mu.Unlock()
				entry, err := d.do(ctx, deed(text))
				p.mu.Lock()
				end, secret := p.steps, ""
				p.mu.Unlock()
				if strings.HasPrefix(text, "session") && err == nil {
					_, secret, err = d.users.StartSession(ctx, entry, userdb.SessionOptions{})
				}
				p.mu.Lock()
				d.done = append(d.done, done{deed(text), who.id, begin, end, err, entry, secret})
				p.mu.Unlock()
			}
		})
	}
}

func (d *drama) name(of string) string { return of + " of " + d.uid }

func (d *drama) do(ctx context.Context, what deed) (userdb.Entry, error) {
	words := strings.Fields(string(what))
	switch words[0] {
	case "login", "session":
		return d.users.Login(ctx, d.name("name"), passwordOf(words[1]), userdb.Attempt{})
	case "set":
		return userdb.Entry{}, errOf(d.users.SetPassword(ctx, uid(d.uid), passwordOf(words[1])))
	case "change":
		return userdb.Entry{}, errOf(d.users.ChangePassword(ctx, uid(d.uid), passwordOf(words[1]), passwordOf(words[2]), userdb.Attempt{}))
	case "end":
		return d.users.EndSessions(ctx, uid(d.uid))
	case "disable":
		return userdb.Entry{}, d.users.Disable(ctx, uid(d.uid))
	case "enable":
		return userdb.Entry{}, d.users.Enable(ctx, uid(d.uid))
	case "delete":
		return userdb.Entry{}, d.users.Delete(ctx, uid(d.uid))
	case "create":
		return d.users.Create(ctx, userdb.NewEntry{UID: d.uid, Facets: schema.Texts("name", d.name(words[2])), Password: passwordOf(words[1])})
	case "rename":
		return d.users.Update(ctx, uid(d.uid), func(e *userdb.Entry) error {
			e.Put("name", schema.Text(d.name(words[1])))
			return nil
		})
	}
	panic("unknown deed " + what)
}

// look reads the entry as it is after a step, and holds its hash to the password that was set last.
func (d *drama) look(by int) standing {
	fields, err := d.raw.HGetAll(context.Background(), "user/uid:"+d.uid).Result()
	must(d.t, err)
	was := d.history[len(d.history)-1]
	s := standing{
		live: fields["~isa"] != "", disabled: fields["~disabled"] != "", hash: fields["password"], name: fields["name"],
		changed: fields["~passwd"], owner: was.owner, rev: fields["~rev"], fields: fields, by: by,
	}
	if s.hash == was.hash {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch words := strings.Fields(string(d.doing[by])); {
	case len(words) == 0: // nobody's: it is made for the play
	case words[0] == "set", words[0] == "create":
		s.owner = passwordOf(words[1])
	case words[0] == "change":
		s.owner = passwordOf(words[2])
		if !was.live || was.disabled || was.owner != passwordOf(words[1]) {
			d.blame("%s was carried out, and the entry was %+v", d.doing[by], was)
		}
	}
	if s.live && !d.fit(s.hash, s.owner) {
		d.blame("%s left a hash that is not of %s", d.doing[by], s.owner)
	}
	return s
}

func (d *drama) fit(hash, pw string) bool {
	key := hash + " " + pw
	if _, known := d.fits[key]; !known {
		d.fits[key] = bcrypt.CompareHashAndPassword([]byte("$2a"+hash[3:]), []byte(pw)) == nil
	}
	return d.fits[key]
}

func (d *drama) blame(format string, args ...any) {
	if d.wrong == "" {
		d.wrong = fmt.Sprintf(format, args...)
	}
}

// judge returns what is wrong with a play that is over, or "".
func (s *stageOfLogins) judge() string {
	d := s.now
	for _, one := range d.done {
		during := d.history[one.begin : one.end+1]
		switch strings.Fields(string(one.deed))[0] {
		case "session":
			d.judgeSession(one)
		case "login":
			d.judgeLogin(one, during)
		default:
			d.judgeOther(one, during)
		}
	}
	return d.wrong
}

// judgeLogin: after the last command of one that succeeds, there is an entry that may log in, with that very time of
// its password; one that does not is refused for a reason.
func (d *drama) judgeLogin(one done, during []standing) {
	pw, name := passwordOf(strings.Fields(string(one.deed))[1]), d.name("name")
	last := during[len(during)-1]
	always := !slices.ContainsFunc(during, func(s standing) bool { return !s.good(pw, name) })
	switch {
	case one.err == nil && !last.good(pw, name):
		d.blame("%s succeeded, and the entry was %+v", one.deed, last)
	case one.err == nil:
		at, err := time.Parse(time.RFC3339, last.changed)
		if err != nil || !one.entry.PasswordChanged().Equal(at) {
			d.blame("%s gave an entry whose password was changed at %v, and that is %s", one.deed, one.entry.PasswordChanged(), last.changed)
		}
	case !errors.Is(one.err, userdb.ErrLogin) || always:
		d.blame("%s answered %v", one.deed, one.err)
	}
}

// judgeSession: a session is good in the end if and only if all were not ended since the login before it, and it is refused for
// that reason alone.
func (d *drama) judgeSession(one done) {
	if one.entry.UID() == "" {
		return // the login is judged by others
	}
	last := one.end // of what the login found
	for last > one.begin && !strings.HasPrefix(d.history[last].rev, one.entry.Rev()) {
		last--
	}
	ended := false
	for i := last + 1; i < len(d.history); i++ {
		was, now := d.history[i-1], d.history[i]
		ended = ended || !now.live || now.disabled || now.changed != was.changed || now.rev != was.rev && d.casts(now.by) == "end"
	}
	_, _, err := d.users.Session(context.Background(), one.secret)
	switch {
	case ended && err == nil:
		d.blame("%s is good, and all sessions have ended since its login", one.deed)
	case !ended && one.err != nil:
		d.blame("%s answered %v", one.deed, one.err)
	case !ended && err != nil:
		d.blame("%s began, and is not good: %v", one.deed, err)
	}
}

// casts is what a player does, if it is one deed.
func (d *drama) casts(who int) string {
	if who < 0 {
		return ""
	}
	return d.stageOfLogins.cast[who]
}

// judgeOther: a verb that succeeds did what it says in its time, another changed nothing of that and has a reason.
func (d *drama) judgeOther(one done, during []standing) {
	words := strings.Fields(string(one.deed))
	any := func(of func(standing) bool) bool { return slices.ContainsFunc(during, of) }
	gone := any(func(s standing) bool { return !s.live })
	refused := any(func(s standing) bool {
		return s.disabled || !s.live || s.owner != passwordOf(words[min(1, len(words)-1)])
	})
	wrote := false
	for i := 1; i < len(during); i++ {
		wrote = wrote || during[i].by == one.who && during[i].rev != during[i-1].rev
	}
	var ok bool
	switch words[0] {
	case "disable":
		ok = one.err == nil && any(func(s standing) bool { return s.disabled }) || errors.Is(one.err, userdb.ErrNotFound) && gone
	case "enable":
		ok = one.err == nil && any(func(s standing) bool { return !s.disabled }) || errors.Is(one.err, userdb.ErrNotFound) && gone
	case "delete":
		ok = one.err == nil && gone || errors.Is(one.err, userdb.ErrNotFound) && gone
	case "change":
		ok = one.err == nil && wrote ||
			!wrote && (errors.Is(one.err, userdb.ErrLogin) && refused || errors.Is(one.err, userdb.ErrNotFound) && gone ||
				errors.Is(one.err, userdb.ErrConflict) && any(func(s standing) bool { return s.hash != during[0].hash }))
	default: // set, end, create, rename
		ok = one.err == nil && wrote || errors.Is(one.err, userdb.ErrNotFound) && gone
	}
	if !ok {
		d.blame("%s answered %v, and wrote: %v", one.deed, one.err, wrote)
	}
}

// dramas are what is played, each player's deeds in a text of its own.
var dramas = [][]string{
	{"login P", "disable"},
	{"login P", "disable, enable"},
	{"login P", "set Q"},
	{"login P", "set P"},
	{"login Q", "set Q"},
	{"login P", "set Q, set P"},
	{"login P", "change P Q"},
	{"login P", "delete"},
	{"login P", "delete, create P name"},
	{"login P", "delete, create Q name"},
	{"login P", "delete, create P another"},
	{"login P", "rename another"},
	{"login P, login P", "disable"},
	{"login P", "login P", "disable"},
	{"login P", "login P", "set Q"},
	{"login P", "change P Q", "disable"},
	{"login P", "set Q", "disable, enable"},
	{"login P", "set Q", "delete"},
	{"change P Q", "disable"},
	{"change P Q", "disable, enable"},
	{"change P Q", "set R"},
	{"change P Q", "change P R"},
	{"change P Q", "delete, create P name"},
	{"change P Q", "login P", "delete"},
	{"session P", "end"},
	{"session P", "set P"},
	{"session P", "change P Q"},
	{"session P", "disable, enable"},
	{"session P", "delete, create P name"},
	{"session P, session P", "end"},
	{"session P", "session P", "end"},
	{"session P", "rename another"},
}

// hashesOfP are one that the next login replaces, and one that stays.
func hashesOfP(t *testing.T) map[string]string {
	return map[string]string{"replaced": bcryptOf(t, "b", 4, passwordOf("P")), "kept": hashed(t, passwordOf("P"))}
}

func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// searched searches a drama on an engine, and returns how many orders there were.
func searched(t *testing.T, engine, hash string, cast []string, m *mutation, preemptions int) (wrong string, plays int) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStageOfLogins(t, engine, hash, cast)
		f := &search{play: s.play, judge: s.judge, tamper: m.tamper(s), preemptions: preemptions, most: setting("USERDB_LOGIN_PLAYS", 3000)}
		if wrong, plays = f.find(), f.plays; plays == f.most {
			t.Logf("NOT exhaustive: more than %d orders", plays)
		}
		must(t, db.Close())
	})
	return wrong, plays
}

// TestLoginInterleavings takes logins that replace the hash, and logins that do not, through all orders of their
// commands and those of others, with up to two preemptions of two players and one of three: after its last command none
// has succeeded at an entry that may not log in. make search allows one preemption more.
func TestLoginInterleavings(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		t.Run(engine, func(t *testing.T) {
			var total atomic.Int64
			t.Cleanup(func() { t.Logf("%d orders", total.Load()) })
			for name, hash := range hashesOfP(t) {
				for _, cast := range dramas {
					t.Run(name+"/"+strings.Join(cast, " | "), func(t *testing.T) {
						t.Parallel()
						wrong, plays := searched(t, engine, hash, cast, nil, setting("USERDB_LOGIN_PREEMPTIONS", 2)+2-len(cast))
						total.Add(int64(plays))
						if wrong != "" {
							t.Errorf("after %d orders: %s", plays, wrong)
						}
					})
				}
			}
		})
	}
}

// A mutation takes a safeguard out of a deed: what its reads of the entry answer, and what its writes say.
type mutation struct {
	name, deed string // the deed's first word
	tried      bool   // only once it has tried to write a hash
	read       func(now map[string]string, began standing) map[string]string
	write      func(d *drama, args []any)
	cast       []string
	kept       bool // a login that replaces no hash has the safeguard, too
	finds      string
}

func asItBegan(field string) func(map[string]string, standing) map[string]string {
	return func(now map[string]string, began standing) map[string]string {
		if now["~isa"] != "" {
			now[field] = began.fields[field]
		}
		return now
	}
}

func enabled(now map[string]string, _ standing) map[string]string {
	delete(now, "~disabled")
	return now
}

func wholeAsItBegan(_ map[string]string, began standing) map[string]string {
	return maps.Clone(began.fields)
}

var mutations = []mutation{
	{name: "no look after the check", deed: "login", read: wholeAsItBegan, cast: []string{"login P", "disable"}, kept: true, finds: "login P succeeded"},
	{name: "no look after the new hash", deed: "login", tried: true, read: wholeAsItBegan, cast: []string{"login P", "set Q"}, finds: "login P succeeded"},
	{name: "the look does not find it gone", deed: "login", read: wholeAsItBegan, cast: []string{"login P", "delete"}, kept: true, finds: "login P succeeded"},
	{name: "disabled is not looked at", deed: "login", read: enabled, cast: []string{"login P", "disable"}, kept: true, finds: "login P succeeded"},
	{name: "the identifier is not looked at", deed: "login", read: asItBegan("name"), cast: []string{"login P", "delete, create P another"}, kept: true, finds: "login P succeeded"},
	{name: "the hash is not looked at", deed: "login", read: asItBegan("password"), cast: []string{"login P", "set Q"}, kept: true, finds: "login P succeeded"},
	{name: "a new hash over any version", deed: "login", write: anyVersion, cast: []string{"login P", "set Q"}, finds: "login P left a hash"},
	{name: "a change from any hash", deed: "change", tried: true, read: asItBegan("password"), cast: []string{"change P Q", "set R"}, kept: true, finds: "change P Q was carried out"},
	{name: "a change of a disabled entry", deed: "change", tried: true, read: enabled, cast: []string{"change P Q", "disable"}, kept: true, finds: "change P Q was carried out"},
	{name: "a change over any version", deed: "change", write: anyVersion, cast: []string{"change P Q", "disable"}, kept: true, finds: "change P Q was carried out"},
	{name: "a session of any epoch", deed: "session", write: anyEpoch, cast: []string{"session P", "end"}, kept: true, finds: "session P is good"},
}

// anyEpoch has the script that looks at the entry of a session expect the epoch that there is.
func anyEpoch(d *drama, args []any) {
	if now := d.history[len(d.history)-1]; len(args) == 9 {
		*args[6].(*string), *args[7].(*string) = now.fields["~epoch"], now.changed
	}
}

// anyVersion has a script expect the version that there is.
func anyVersion(d *drama, args []any) {
	now := d.history[len(d.history)-1].rev
	for _, arg := range args {
		text, is := arg.(*string)
		for _, s := range d.history {
			if is && len(s.rev) >= 12 && *text == s.rev[:12] {
				*text = now[:min(12, len(now))]
			}
		}
	}
}

// tamper carries a mutation out.
func (m *mutation) tamper(s *stageOfLogins) *tamper {
	if m == nil {
		return nil
	}
	doing := func(d *drama, who *player) (standing, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.began[who.id], strings.HasPrefix(string(d.doing[who.id]), m.deed) && (d.tried[who.id] || !m.tried)
	}
	return &tamper{
		before: func(who *player, cmd redis.Cmder) {
			d := s.now
			if _, is := doing(d, who); is && m.write != nil && strings.HasPrefix(cmd.Name(), "eval") {
				m.write(d, cmd.Args())
			}
			if strings.Contains(wordsOf(cmd), "password $2a$") {
				d.mu.Lock()
				d.tried[who.id] = true
				d.mu.Unlock()
			}
		},
		after: func(who *player, cmd redis.Cmder) {
			began, is := doing(s.now, who)
			if fields, reads := cmd.(*redis.MapStringStringCmd); reads && is && m.read != nil && cmd.Name() == "hgetall" {
				fields.SetVal(m.read(maps.Clone(fields.Val()), began))
			}
		},
	}
}

// TestLoginMutations takes one safeguard after the other out, and wants the search to notice.
func TestLoginMutations(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		for _, m := range mutations {
			for name, hash := range hashesOfP(t) {
				if name == "kept" && !m.kept {
					continue
				}
				t.Run(engine+"/"+name+"/"+m.name, func(t *testing.T) {
					t.Parallel()
					wrong, plays := searched(t, engine, hash, m.cast, &m, 4-len(m.cast))
					if !strings.HasPrefix(wrong, m.finds) {
						t.Errorf("after %d orders: %q, want %q", plays, wrong, m.finds)
					}
				})
			}
		}
	}
}
