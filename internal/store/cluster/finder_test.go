package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// mostFinders is how many actors of a scenario may look for owners.
const mostFinders = 4

// uids are those of scenarios.
var uids = []string{"A", "P", "Q", "R"}

// A shown is what a lookup answered: a UID, or "" for nobody.
type shown string

func (s shown) Error() string { return "shown: " + string(s) }

// find looks for the owner of a value by its SRKs.
func find(value string, fields ...string) verb {
	return verb{name: fmt.Sprintf("find %s %v", value, fields), finds: value, in: fields, do: func(ctx context.Context, a *actor) error {
		var l store.Lookup
		for _, field := range fields {
			srk, err := recordkey.SRK("user", field, value)
			if err != nil {
				return err
			}
			l.SRKs = append(l.SRKs, srk)
		}
		found, err := a.engine.Find(ctx, []store.Lookup{l})
		switch {
		case err != nil:
			return err
		case errors.Is(found[0].Err, store.ErrNotFound):
			return shown("")
		case found[0].Err != nil:
			return found[0].Err
		}
		return shown(found[0].Record.Key.Value())
	}}
}

// look notes for those who look for owners by whom their values are held now: bit 0 is nobody.
func (x *explorer) look(m *moment) {
	for i, r := range m.cast {
		if v := x.sought(i, r); v.finds != "" {
			m.held[i] |= x.holders(*m, v)
		}
	}
}

// sought is the verb that an actor is at.
func (x *explorer) sought(i int, r role) verb {
	if r.dead || r.at.done >= len(x.scenario.actors[i]) {
		return verb{}
	}
	return x.scenario.actors[i][r.at.done]
}

// holders are those who hold a value, by their bits.
func (x *explorer) holders(m moment, v verb) (bits uint8) {
	for i, uid := range uids {
		r := record(recordkey.Key{}, x.stock.list[at(m.cells, x.stock.key("user/uid:"+uid))])
		for _, field := range v.in {
			if r.Live() && r.SKV(field) == v.finds {
				bits |= 1 << (i + 1)
			}
		}
	}
	if bits == 0 {
		return 1
	}
	return bits
}

// misled says what was wrong about the answer to an actor's lookup: it must have been so at some moment since it began. Where
// writes were lost, only who was shown must have held the value.
func (x *explorer) misled(m moment, i int, name string, answer error) string {
	var who shown
	var corrupt *store.CorruptError
	switch {
	case x.scenario.actors[i][m.cast[i].at.done-1].finds == "":
		return ""
	case errors.As(answer, &corrupt) && !m.undone:
		return "lookup: " + name + ": " + answer.Error()
	case !errors.As(answer, &who), m.undone && who == "":
		return ""
	}
	for bit, uid := range append([]string{""}, uids...) {
		if uid == string(who) && m.held[i]&(1<<bit) == 0 {
			return fmt.Sprintf("lookup: %s: shown %q, held by %b", name, uid, m.held[i])
		}
	}
	return ""
}
