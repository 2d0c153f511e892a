package check

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A sight is an SRK that is looked at because an entry has its value: the one that a claim is about,
// or one of the same value under another secondary field (I2).
type sight struct {
	claim *claim
	srk   recordkey.Key
	own   bool
}

// A rival is a sight that names something else than the claim's entry.
type rival struct {
	sight
	srv string
}

// sights are what all claims are judged by. An SRK that is another claim of the same entry is not
// looked at twice.
func sights(es []*entry) []sight {
	n := 0
	for _, e := range es {
		n += len(e.claims) * len(e.t.Secondary)
	}
	all := make([]sight, 0, n)
	for _, e := range es {
		for _, own := range e.claims {
			all = append(all, sight{claim: own, srk: own.srk, own: true})
			for _, field := range e.t.Secondary {
				if field == own.srk.Field() || e.claimsIn(field, own.srk.Value()) {
					continue
				}
				if srk, err := recordkey.SRK(e.t.Name, field, own.srk.Value()); err == nil {
					all = append(all, sight{claim: own, srk: srk.In(e.key.Namespace())})
				}
			}
		}
	}
	return all
}

func (e *entry) claimsIn(field, value string) bool {
	for _, c := range e.claims {
		if c.srk.Field() == field && c.srk.Value() == value {
			return true
		}
	}
	return false
}

func srksOf(all []sight) []string {
	keys := make([]string, len(all))
	for i, s := range all {
		keys[i] = s.srk.String()
	}
	return keys
}

// lookAtClaims looks at the SRKs of all secondary values of entries. One that names another entry is
// judged by what that entry has.
func (c *checker) lookAtClaims(ctx context.Context, fs *findings, es []*entry) error {
	all := sights(es)
	srvs, err := store.Texts(ctx, c.Engine, srksOf(all))
	if err != nil {
		return err
	}
	var absent []sight
	var rivals []rival
	for i, s := range all {
		switch {
		case !srvs[i].Is && s.own:
			absent = append(absent, s)
		case !srvs[i].Is:
		case store.Owner(srvs[i].Wire) != s.claim.e.prk:
			rivals = append(rivals, rival{s, srvs[i].Wire})
		case s.own:
			s.claim.holds = true
		}
	}
	if err := c.lookAtAbsent(ctx, fs, absent); err != nil {
		return err
	}
	return c.lookAtRivals(ctx, fs, rivals)
}

// lookAtAbsent tells an SRK that is not there from one of another Redis type (I1).
func (c *checker) lookAtAbsent(ctx context.Context, fs *findings, absent []sight) error {
	kinds, err := store.Kinds(ctx, c.Engine, srksOf(absent))
	for i, kind := range kinds {
		e := absent[i].claim.e
		if kind == store.KindNone || kind == "string" {
			e.add(fs, codeSRKMissing, absent[i].srk, "%s has this value, and cannot be found by it", records.Printable(e.prk))
		} else {
			e.add(fs, codeSRKWrong, absent[i].srk, "%s has this value, but its SRK is a %s", records.Printable(e.prk), records.Quoted(kind))
		}
	}
	return err
}

// lookAtRivals judges SRKs that name others than the entry that has their value: if those have it
// too, it belongs to two (I2), and if not, the entry's own SRK is wrong (I1).
func (c *checker) lookAtRivals(ctx context.Context, fs *findings, rivals []rival) error {
	asked := make([]ownerRead, len(rivals))
	for i, s := range rivals {
		t := s.claim.e.t
		key, code := ownerOf(t, s.srk.Namespace(), s.srv)
		if code == "" {
			asked[i] = ownerRead{t: t, key: key}
		}
	}
	owners, err := c.owners(ctx, asked)
	if err != nil {
		return err
	}
	type pair struct {
		e     *entry
		value string
		other recordkey.Key
	}
	told := map[pair]bool{}
	for i, s := range rivals {
		p := pair{s.claim.e, s.srk.Value(), owners[i].key}
		switch field, has := owners[i].has(s.claim.e.t, s.srk.Value()); {
		case has && !told[p] && !c.toldThere(s.sight, owners[i].key):
			told[p] = true
			s.claim.shared(fs, owners[i], field)
		case !has && s.own:
			s.wrong(fs, owners[i])
		}
	}
	return nil
}

// toldThere says whether the same is found, and told, at the other entry: where each of two entries
// has its own SRK, both see it.
func (c *checker) toldThere(s sight, other recordkey.Key) bool {
	return c.whole && s.claim.holds && s.claim.e.prk < records.Relative(other)
}

// shared reports that another entry has a claim's value under field.
func (c *claim) shared(fs *findings, other owner, field string) {
	a, b := c.e.key.In(recordkey.Namespace{}), other.key.In(recordkey.Namespace{})
	f := c.e.add(fs, codeValueShared, c.srk, "%s has this value in %s, and %s in %s",
		records.Printable(a.String()), records.Quoted(c.srk.Field()), records.Printable(b.String()), records.Quoted(field))
	f.seen += " " + other.seen()
	if f.Choices = []recordkey.Key{a, b}; a.Compare(b) > 0 {
		f.Choices = []recordkey.Key{b, a}
	}
}

func (s rival) wrong(fs *findings, other owner) {
	e := s.claim.e
	f := e.add(fs, codeSRKWrong, s.srk, "%s has this value, but its SRK names %s, which does not", records.Printable(e.prk), records.Quoted(store.Owner(s.srv)))
	f.seen += " " + s.srv + " " + other.seen()
}
