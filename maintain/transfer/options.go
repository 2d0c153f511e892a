package transfer

import (
	"fmt"
	"io"
	"time"
)

// What an import does if an entry already exists or one of its identifiers is taken.
const (
	DuplicateFail   = "fail"   // refuse the line
	DuplicateSkip   = "skip"   // skip the line if it is about an existing entry, see Import
	DuplicateUpdate = "update" // update the entry
)

// ImportOptions say what Import reads and how. The zero ImportOptions import new entries from JSON
// lines.
type ImportOptions struct {
	Type        string // type of lines that name none; empty means user
	CSV         bool   // the input is CSV with a header, not JSON lines
	OnDuplicate string // DuplicateFail (the default), DuplicateSkip or DuplicateUpdate
	DryRun      bool   // write nothing, only report the outcome
	// HidePasswords keeps a DryRun from comparing passwords with those of entries, so that nobody
	// can try passwords with it. The dry run counts every line with a password as an update.
	HidePasswords bool
	// From names another product whose export is the input, one of Products. Empty means none.
	From string
	// FromParams holds the password hash parameters of a Firebase project, as the Firebase console
	// shows them or as JSON.
	FromParams string
	// Map renames columns of CSV, and facets and tertiary records of JSON. The new name is a field,
	// password, clear_password, password_changed, disabled, ~disabled (true or false) or ~isa (the
	// type). "!disabled" means the opposite of disabled, "disabled_until" is a date until which an
	// account is disabled, and "verified:FIELD" is true if the facet FIELD is verified. A key of a
	// JSON line that appears in Map or Ignore is read as a facet of a flat object. Names that are
	// not in Map stay as they are.
	Map map[string]string
	// Ignore lists columns, facets and tertiary records to leave out, and for From also any other
	// key of an account. "*" leaves out everything that Map does not name, and an empty name stands
	// for columns of CSV without a name.
	Ignore []string
	// Delimiter separates the columns of CSV. 0 means a comma, or the character that a line such as
	// sep=; before the header names.
	Delimiter rune
	// Null is the text of an unquoted cell of CSV that means no value, as an unquoted \N always
	// does. Empty means that there is none: NULL is the name of some people.
	Null string
	// Split says which fields hold several values in one cell of CSV, and by which character these
	// are separated. A value that has the character is in quotes. The first value is the facet.
	Split map[string]rune
	// Zone is the time zone of times that name none. If nil, lines with such times are refused.
	Zone *time.Location
	// KeepIDs keeps the prefix auth0| of an Auth0 user ID, which applications may have stored.
	KeepIDs bool
	// Prepared says how a product changes a password before it hashes it, as the form of
	// password.Prepared, and Pepper is the text that the form "append" appends. Empty means that
	// hashes are of the passwords themselves.
	Prepared, Pepper string
	// WithoutPassword imports an account without its password if the password cannot be used: the
	// hash is of a kind that login cannot verify, or the policy refuses the clear password. If it
	// is false, such lines are refused.
	WithoutPassword bool
	// WithoutIdentifier imports new accounts from CSV, from flat JSON and from other products even
	// if they have no secondary facet. Nobody can log in to them. Lines of an export never need it.
	WithoutIdentifier bool
	// Trial, if not nil, checks one account in a DryRun.
	Trial *Trial
	// Extra keeps facets that the schema does not declare. It requires types that are open.
	Extra bool
	// Rejects, if not nil, receives the refused lines in the form of the input, with their numbers
	// and the reasons, each with one call of Write. If nil, refused lines are only counted.
	Rejects io.Writer
	// Resume continues an interrupted import of the same input, with the same values of the options
	// that say how the input is read: Type, CSV, From, FromParams, Map, Ignore, Delimiter, Null,
	// Split, Zone, KeepIDs, Prepared, Pepper, WithoutPassword and WithoutIdentifier. The zero
	// ImportState starts from the beginning.
	Resume ImportState
	// Restarted, if not nil, is called before the first line is read if an import that Resume would
	// continue starts again from that line. Lines that were refused before are reported again.
	Restarted func()
	// Save, if not nil, is called with the state of the import after each batch that is stored
	// permanently.
	Save func(ImportState) error
	// Refused, if not nil, is called for each refused line.
	Refused func(line int64, reason string)
}

// A Report counts what an import or an export did.
type Report struct {
	Read    int64 `json:"read"` // entries exported, or lines read
	Created int64 `json:"created"`
	Updated int64 `json:"updated"`
	Skipped int64 `json:"skipped"`
	Refused int64 `json:"refused"`

	// Held and Retired count the lines about held values and retired UIDs that an import applied or
	// an export wrote.
	Held    int64 `json:"held,omitzero"`
	Retired int64 `json:"retired,omitzero"`

	// NoPassword counts entries that were created or updated and have no password. NoIdentifier
	// counts created entries that have no secondary facet, so that nobody can log in to them.
	NoPassword   int64 `json:"without_password,omitzero"`
	NoIdentifier int64 `json:"without_identifier,omitzero"`
	// SecondFactor and RequiredAction count accounts that were imported without the second factor,
	// or without the action at the next login, that their product requires. SecondFactor also
	// counts lines of exports without Secrets, and lines with factors that an existing entry lacks.
	SecondFactor   int64 `json:"second_factor_left_out,omitzero"`
	RequiredAction int64 `json:"required_action_left_out,omitzero"`
	// NameLeftOut counts user names that were left out, because the rules refuse them or they are
	// the entry's own address.
	NameLeftOut int64 `json:"name_left_out,omitzero"`
	// PasswordKept counts lines whose password was left out, because another one was set here.
	PasswordKept int64 `json:"password_kept,omitzero"`
}

// Notes returns a line of text for each count that is not zero, except Read, Created, Updated,
// Skipped and Refused.
func (r Report) Notes() (notes []string) {
	for _, n := range []struct {
		count int64
		text  string
	}{
		{r.Held, "held: nobody else can take the value yet"},
		{r.Retired, "retired: the UID of a deleted entry, which is not reused"},
		{r.NoPassword, "without a password, which each owner sets with a token"},
		{r.NoIdentifier, "without an identifier: nobody can log in"},
		{r.SecondFactor, "with a second factor, which was left out"},
		{r.RequiredAction, "with a required action, which was left out"},
		{r.NameLeftOut, "without the user name, which is an address or cannot be a name"},
		{r.PasswordKept, "with a password that was set here, which stays"},
	} {
		if n.count > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n.count, n.text))
		}
	}
	return notes
}

// A Trial reports whether a password would log in to an account after an import. The caller sets
// Identifier and Password; a dry run sets the rest.
type Trial struct {
	Identifier, Password string
	Line                 int64  // the line of the account; 0 if no line has the identifier
	OK                   bool   // Password would log in
	Reason               string // why it would not
}
