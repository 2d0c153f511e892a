package check

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A Problem describes one thing that is wrong with the records.
type Problem struct {
	// Code is the kind of damage, one of those listed in the package documentation.
	Code string `json:"code"`
	// Invariant is 1 to 5 for I1 to I5, or 0 if the problem breaks none of them.
	Invariant int `json:"invariant"`
	// Key is the key of the record, relative to the view's namespace. It may hold any bytes.
	Key string `json:"key"`
	// Text describes the damage in one line of printable text.
	Text string `json:"message"`
	// Severity is SeverityError or SeverityWarning.
	Severity string `json:"severity"`
	// Repaired reports whether the problem was repaired.
	Repaired bool `json:"repaired"`
	// Choices lists the PRKs of the entries of a value_shared problem, sorted. It is empty for
	// other problems.
	Choices []recordkey.Key `json:"choices,omitempty"`
	// Field is the field that is too long, for entry_not_compact only. It is empty if the number of
	// fields is too large.
	Field string `json:"field,omitempty"`
}

// The severities of problems. A store can live with a warning.
const (
	SeverityError   = "error"
	SeverityWarning = "problem"
)

// String returns the problem as one line of printable text.
func (p Problem) String() string {
	return fmt.Sprintf("%s %s %s: %s", p.Severity, p.Code, records.Shorten(p.Key, int64(len(p.Key))), p.Text)
}

// A remedy says what a repair does about a code.
type remedy int

const (
	warning       remedy = iota // nothing: the store can live with it
	needsDecision               // nothing: a person must say what the record was meant to be
	fixFirst                    // a step before all others, on a record that they depend on
	fixRecord                   // a step that changes or removes one record
	fixEntry                    // a change of the entry, which claims its SRKs
)

// A code describes one kind of damage: the invariant that it breaks, its remedy, and the format of
// its message. The meaning of each code is in doc.go; scripts rely on the names.
type code struct {
	name      string
	invariant int
	remedy    remedy
	text      string
}

var codes = map[string]*code{}

func define(name string, invariant int, r remedy, text string) *code {
	codes[name] = &code{name, invariant, r, text}
	return codes[name]
}

var (
	deleteUnfinished = define("delete_unfinished", 4, fixRecord, "the entry was deleted, but its facets are still there")
	dropWaiting      = define("drop_waiting", 4, fixRecord, "%d members of a replaced or deleted record are not dropped yet")
	entryMissing     = define("entry_missing", 0, needsDecision, "there is no entry")
	entryNotCompact  = define("entry_not_compact", 0, warning,
		"%s; by its default limits, Redis does not keep such entries compact, so they take more memory")
	facetUndecodable = define("facet_undecodable", 0, needsDecision, "%s: %v")
	factorHash       = define("factor_hash", 0, needsDecision,
		"%s: ending its sessions or setting a password fixes it; 'userdb factor remove' removes all factors")
	factorMissing = define("factor_missing", 0, needsDecision, "%s: 'userdb factor remove' removes it")
	factorOrphan  = define("factor_orphan", 4, fixRecord, "there is no entry %s")
	fieldMissing  = define("field_missing", 0, warning, "no %s")
	fillOrphan    = define("fill_orphan", 4, fixRecord, "elements staged for a record of %s that no change uses")
	fillWaiting   = define("fill_waiting", 5, fixRecord, "%d staged elements are not in it yet")
	formOther     = define("form_other", 1, needsDecision,
		"%s is stored as %s, by version %s of the canonical form, but this program looks for %s: 'userdb schema apply' converts it")
	furtherMany  = define("further_many", 0, warning, "%d values of %s, but the schema allows %d")
	furtherWrong = define("further_wrong", 1, fixEntry, "the further value %s of %s: %s")
	heldEnding   = define("held_ending", 4, fixRecord, "the tombstone holds values for longer than its time to live")
	heldMissing  = define("held_missing", 2, fixRecord, "%s holds this value, which it gave up, but another entry can take it")
	heldTaken    = define("held_taken", 2, needsDecision,
		"%s holds this value, which it gave up, but its SRK names %s: 'userdb held release' ends the hold")
	historyOrphan   = define("history_orphan", 4, fixRecord, "there is no entry %s")
	indexKind       = define("index_kind", 5, fixRecord, "an index is a set, but this is a %s")
	indexMissing    = define("index_missing", 5, fixRecord, "%s is not in it%s")
	indexOrphan     = define("index_orphan", 4, fixRecord, "its member %s is not %s")
	indexStale      = define("index_stale", 5, fixRecord, "%s is in it, but does not have the value in %s")
	indexUndeclared = define("index_undeclared", 0, warning, "the schema does not index %s")
	indexUnkeyable  = define("index_unkeyable", 5, needsDecision, "no index key can hold %s: it is %s")
	isaMissing      = define("isa_missing", 3, fixEntry, "a hash with facets, but without ~isa, is not an entry")
	keyField        = define("key_field", 3, needsDecision, "the primary field of type %s is %s")
	keyUnparsable   = define("key_unparsable", 4, fixRecord, "this store neither writes nor looks up such a key: %s")
	orderKind       = define("order_kind", 5, fixRecord, "an ordered index is a sorted set, but this is a %s")
	orderMissing    = define("order_missing", 5, fixRecord, "%s is not at its position in it")
	orderOrphan     = define("order_orphan", 4, fixRecord, "its member %s names no entry%s")
	orderStale      = define("order_stale", 5, fixRecord, "%s is at a wrong position in it")
	orderUndeclared = define("order_undeclared", 0, warning, "the schema does not order %s by %s")
	orderUnplaced   = define("order_unplaced", 5, needsDecision, "%s cannot be ordered: it is over 1 KiB or cannot be decoded")
	ownCopying      = define("own_copying", 0, needsDecision,
		"the copy of namespace %s to this one is not finished: 'userdb namespace copy' continues it, 'userdb namespace drop' removes it")
	ownSchema = define("own_schema", 0, fixFirst, "%s")
	ownSecret = define("own_secret", 0, fixFirst,
		"the secret of the namespace cannot be one that this store made; the next login creates another")
	ownThrottle = define("own_throttle", 0, fixRecord,
		"not counters that this store could have written; logins are refused until they are removed, and then counted from zero")
	ownTypes    = define("own_types", 0, fixFirst, "%s")
	passkeyLost = define("passkey_lost", 0, needsDecision,
		"its passkey %s has no digest by which it is found, so nobody can use it: 'userdb factor remove' removes it")
	passkeyOrphan = define("passkey_orphan", 0, needsDecision,
		"%s in %s belongs to no passkey of the entry, so nobody can use it: 'userdb set HINT FIELD-=VALUE' removes it")
	primaryWrong    = define("primary_wrong", 3, fixEntry, "%s is %s")
	prkKind         = define("prk_kind", 3, needsDecision, "an entry is a hash, but this is not")
	prkWrong        = define("prk_wrong", 3, fixEntry, "~prk is %s")
	requiredMissing = define("required_missing", 0, needsDecision, "no %s, which its type requires")
	retiredEnding   = define("retired_ending", 4, fixRecord, "the UID is retired, but its tombstone has a time to live")
	schemaMissing   = define("schema_missing", 0, needsDecision,
		"the schema declares no type %s; nothing that belongs to this entry was checked")
	skvWrong           = define("skv_wrong", 1, fixEntry, "~skv of %s is %s")
	srkKind            = define("srk_kind", 4, fixRecord, "an SRK is a string, but this is a %s")
	srkMissing         = define("srk_missing", 1, fixEntry, "%s has this value but cannot be found by it")
	srkOrphan          = define("srk_orphan", 4, fixRecord, "there is no entry %s")
	srkStale           = define("srk_stale", 4, fixRecord, "%s does not have this value in %s")
	srkUndeclared      = define("srk_undeclared", 0, warning, "the schema does not declare %s as a secondary field")
	srkWrong           = define("srk_wrong", 1, fixEntry, "%s has this value, but its SRK %s")
	srvType            = define("srv_type", 4, fixRecord, "it names %s, which is not an entry of type %s")
	srvUnparsable      = define("srv_unparsable", 4, fixRecord, "%s is not a PRK")
	tertiaryKind       = define("tertiary_kind", 0, needsDecision, "the schema declares a %s, but this is a %s")
	tertiaryOrphan     = define("tertiary_orphan", 4, fixRecord, "there is no entry %s")
	tertiaryUndeclared = define("tertiary_undeclared", 0, warning, "the schema declares no tertiary record %s")
	tombstoneEndless   = define("tombstone_endless", 4, fixRecord, "the tombstone of a deleted entry has no time to live")
	typeMismatch       = define("type_mismatch", 3, fixEntry, "~isa is %s")
	valueShared        = define("value_shared", 2, fixEntry, "%s")
	valueUnkeyable     = define("value_unkeyable", 1, needsDecision, "no key can hold the value of %s: it is %s")
)

// newProblem returns a problem of the code c. Its text is formatted with args.
func (c *code) newProblem(key string, args ...any) Problem {
	severity := SeverityError
	if c.remedy == warning {
		severity = SeverityWarning
	}
	return Problem{Code: c.name, Invariant: c.invariant, Key: key, Text: fmt.Sprintf(c.text, args...), Severity: severity}
}

// Repairs reports whether [Options].Repair fixes problems of the named code without a human
// decision. It returns false for an unknown code.
func Repairs(name string) bool {
	c, ok := codes[name]
	return ok && c.remedy != warning && c.remedy != needsDecision && c != valueShared
}

// A finding is a problem, the state it was found in, and the step that fixes it.
type finding struct {
	Problem
	code *code
	at   int // index of the checked item
	// seen distinguishes the finding from others with the same code and key. It includes the revs
	// of the entries involved.
	seen   string
	values []uint64         // digests of the secondary values that another entry may also have
	step   store.RepairStep // for fixFirst and fixRecord; nil if a person must decide
}

// digest identifies the problem across checks. It leaves out seen, which other changes of the same
// entries also alter.
func (f finding) digest() uint64 { return records.Digest(f.Code, f.Key) }

type findings []finding

// A report collects the findings of one check. If err is set, the findings do not count.
type report struct {
	found findings
	err   error
}

// add appends a problem of the record under key.
func (r *report) add(at int, c *code, key recordkey.Key, seen string, args ...any) *finding {
	return r.addRaw(at, c, records.Relative(key), seen, args...)
}

func (r *report) addRaw(at int, c *code, key, seen string, args ...any) *finding {
	r.found = append(r.found, finding{Problem: c.newProblem(key, args...), code: c, at: at, seen: seen})
	return &r.found[len(r.found)-1]
}

// read calls the function get, which reads the records for asked, unless the report already has an
// error. On an error it returns zero values, so that callers need to check r.err only at the end.
func read[A, T any](
	ctx context.Context, r *report, e store.Maintenance, asked []A, get func(context.Context, store.Maintenance, []A) ([]T, error),
) []T {
	if r.err == nil {
		var answers []T
		if answers, r.err = get(ctx, e, asked); r.err == nil {
			return answers
		}
	}
	return make([]T, len(asked))
}

func readFields(ctx context.Context, e store.Maintenance, asked []store.RawRead) ([]store.Raw, error) {
	return e.ReadRaw(ctx, asked)
}

// readHasMembers calls HasMembers unless the report already has an error. Like read, it returns
// zero values on an error.
func readHasMembers(ctx context.Context, r *report, e store.Indexes, asked []store.Member, atOnce bool) []bool {
	if r.err == nil {
		var answers []bool
		if answers, r.err = e.HasMembers(ctx, asked, atOnce); r.err == nil {
			return answers
		}
	}
	return make([]bool, len(asked))
}

func readRaw(ctx context.Context, e store.Maintenance, keys []string) ([]store.Raw, error) {
	return store.Inspect(ctx, e, keys, 0)
}
