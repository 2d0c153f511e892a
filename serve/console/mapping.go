package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// Limits on an upload of CSV whose columns have not been mapped yet.
const (
	pendingFor  = 30 * time.Minute // since its operator looked at it last
	previewRows = 10
	maxMapped   = 200 // columns
)

// A pendingUpload is a file whose operator maps its columns. Once its dry run has begun, the dry
// run owns the file, and job is the ID of the dry run.
type pendingUpload struct {
	upload
	operator recordkey.Key
	seen     time.Time
	job      string
}

// leavesBefore reports whether p is removed before other to make room. Uploads whose file a dry run
// owns are removed first, and then those that were not looked at for the longest time.
func (p *pendingUpload) leavesBefore(other *pendingUpload) bool {
	if begun := p.job != ""; begun != (other.job != "") {
		return begun
	}
	return p.seen.Before(other.seen)
}

// pendingUploads holds the uploads of this process whose columns are being mapped: the last one of
// each operator, and at most maxUploads. The zero value is ready to use.
type pendingUploads struct {
	mu  sync.Mutex
	all map[string]*pendingUpload
}

// add keeps an upload of an operator in place of an earlier one, and returns its ID.
func (p *pendingUploads) add(u upload, operator recordkey.Key, now time.Time) (id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := ""
	for other, one := range p.all {
		switch {
		case one.operator == operator:
			one.remove()
			delete(p.all, other)
		case oldest == "" || one.leavesBefore(p.all[oldest]):
			oldest = other
		}
	}
	if len(p.all) >= maxUploads {
		p.all[oldest].remove()
		delete(p.all, oldest)
	}
	if p.all == nil {
		p.all = map[string]*pendingUpload{}
	}
	id = admin.NewJobID()
	p.all[id] = &pendingUpload{upload: u, operator: operator, seen: now}
	return id
}

// find returns an upload of an operator, and keeps it for another pendingFor.
func (p *pendingUploads) find(id string, operator recordkey.Key, now time.Time) (pendingUpload, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[id]
	if one == nil || one.operator != operator || now.Sub(one.seen) > pendingFor {
		return pendingUpload{}, false
	}
	one.seen = now
	return *one, true
}

// begin calls start, which begins the dry run of an upload and takes over its file. If start fails,
// the upload stays. An upload has one dry run: after that has begun, begin returns the ID of its
// job and ErrJobExists. While start runs, other requests wait, so that the second click on the
// button finds the job.
func (p *pendingUploads) begin(id string, start func(upload) (admin.Job, error)) (admin.Job, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[id]
	if one == nil {
		return admin.Job{}, errElsewhere
	}
	if one.job != "" {
		return admin.Job{ID: one.job}, admin.ErrJobExists
	}
	j, err := start(one.upload)
	if err == nil {
		one.job, one.upload = j.ID, upload{}
	}
	return j, err
}

// removeExpired removes the uploads that their operators have not looked at for pendingFor.
func (p *pendingUploads) removeExpired(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, one := range p.all {
		if now.Sub(one.seen) > pendingFor {
			one.remove()
			delete(p.all, id)
		}
	}
}

// A mappingPage says what the columns of an upload become, and shows its first accounts.
type mappingPage struct {
	Path, Type, Duplicates string
	Groups                 []choiceGroup
	Columns                []mappedColumn
	LeftOut                string   // why other columns of the file are not listed, or ""
	Fields                 []string // the columns of the preview
	Rows                   []previewRow
	Cut                    bool   // the first account is too long to be shown
	Summary                string // what would become of these accounts
}

// A mappedColumn is a column of the file. To is what it becomes, or "" if it is left out, and Input
// the name of the input for that.
type mappedColumn struct{ Input, Name, Example, To string }

// A choiceGroup holds what a column can become.
type choiceGroup struct {
	Label   string
	Choices []namedChoice
}

type namedChoice struct{ Name, Text string }

// A previewRow shows a line of the file. Refused says why the import would refuse it.
type previewRow struct {
	Line    int64
	Cells   []cell
	Refused string
}

// beginMapping keeps an upload until its columns are mapped, and leads to the page for that.
func (c *Console) beginMapping(w http.ResponseWriter, r *http.Request, u upload) {
	db, err := c.view(r.Context())
	if err == nil && !slices.Contains(db.Schema().Names(), u.Type) {
		err = errType
	}
	if err == nil {
		_, err = readSample(u)
	}
	if err != nil {
		u.remove()
		c.respondUpload(w, r, err)
		return
	}
	id := c.jobs.pending.add(u, web.Entry(r.Context()).Key(), time.Now())
	c.jobs.startSweep(r.Context())
	http.Redirect(w, r, "/console/import/"+id, http.StatusSeeOther)
}

// respondUpload shows err on the page for uploads if err is about an upload, and otherwise on a
// page of its own.
func (c *Console) respondUpload(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, transfer.ErrInput) {
		err = uploadError(capitalize(inputError(err).Error()) + ".")
	}
	if problem, ok := errors.AsType[uploadError](err); ok {
		c.showJobs(w, r, "import", "Import accounts", web.Problem{Field: "file", Text: string(problem)})
		return
	}
	c.fail(w, r, err)
}

// readSample reads the beginning of an upload.
func readSample(u upload) (transfer.Sample, error) {
	file, err := os.Open(u.Path)
	if errors.Is(err, os.ErrNotExist) {
		err = errElsewhere
	}
	if err != nil {
		return transfer.Sample{}, err
	}
	defer file.Close()
	sample, err := transfer.ReadSample(file, u.options(true), previewRows)
	switch {
	case err == nil && len(sample.Header) == 0:
		err = uploadError("The file is empty.")
	case err == nil && len(sample.Header) > maxMapped:
		err = uploadError("The file has more than 200 columns. Import it with “userdb import”.")
	}
	return sample, err
}

// mapping shows the columns of an upload and its first accounts.
func (c *Console) mapping(w http.ResponseWriter, r *http.Request) { c.withPending(w, r, false) }

// applyMapping shows the first accounts with the columns that were chosen, or starts the dry run
// with them.
func (c *Console) applyMapping(w http.ResponseWriter, r *http.Request) {
	c.withPending(w, r, r.PostFormValue("do") == "dry")
}

// withPending shows the upload in the path, or starts its dry run.
func (c *Console) withPending(w http.ResponseWriter, r *http.Request, dry bool) {
	id := r.PathValue("id")
	one, ok := c.jobs.pending.find(id, web.Entry(r.Context()).Key(), time.Now())
	if ok && one.job != "" {
		http.Redirect(w, r, "/console/jobs/"+one.job, http.StatusSeeOther)
		return
	}
	err := error(errElsewhere)
	var sample transfer.Sample
	if ok {
		sample, err = readSample(one.upload)
	}
	db, viewErr := c.view(r.Context())
	if err = errors.Join(err, viewErr); err != nil {
		c.respondUpload(w, r, err)
		return
	}
	declared, known := db.Schema().Types[one.Type]
	if !known { // the schema has changed since
		c.respondUpload(w, r, errType)
		return
	}
	p := mappingPage{Path: "/console/import/" + id, Type: one.Type, Cut: sample.IsCut, Groups: columnChoices(declared, len(db.Schema().Types) > 1)}
	p.Duplicates = map[string]string{"skip": "are left unchanged", "update": "are updated"}[one.Duplicate]
	p.Duplicates = cmp.Or(p.Duplicates, "are refused")
	p.mapColumns(sample, r)
	one.Columns = p.columns(sample.Header)
	report, problem, err := p.preview(r.Context(), db, one.upload, sample)
	if err == nil && dry && problem == "" {
		var j admin.Job
		j, err = c.jobs.pending.begin(id, func(u upload) (admin.Job, error) {
			u.Columns = one.Columns
			return c.jobs.importJob(r.Context(), db, senderName(r), u, true)
		})
		if _, refused := errors.AsType[uploadError](err); !refused {
			c.respondStarted(w, r, j, err, "import", "Import accounts")
			return
		}
	}
	if err != nil {
		c.respondUpload(w, r, err)
		return
	}
	var problems []web.Problem
	if problem != "" {
		problems = []web.Problem{{Text: problem}}
	} else if len(p.Rows) > 0 {
		p.Summary = importText(report, true)
	}
	c.show(w, r, statusOf(problems), page{Name: "mapping", Title: "Import " + one.Name, RailPath: "/console/import", Data: p, Problems: problems})
}

// maySelect reports whether the page lists a column, so that operators choose what it becomes. It
// leaves out columns without a name. It also leaves out those of exports and of files of refused
// lines, which an import knows, except the type and the state of an account.
func maySelect(name string) bool {
	return name != "" && (!strings.HasPrefix(name, "~") || name == "~isa" || name == "~disabled")
}

// columnInput precedes the number of a column, from 0, in the name of the input that says what it
// becomes.
const columnInput = "c-"

// mapColumns sets what each column becomes: what the form says or, if it says nothing about any,
// the field of the same name.
func (p *mappingPage) mapColumns(sample transfer.Sample, r *http.Request) {
	guess := true
	for name := range r.PostForm {
		guess = guess && !strings.HasPrefix(name, columnInput)
	}
	for i, name := range sample.Header {
		if !maySelect(name) {
			p.LeftOut = "Columns without a name are left out, and columns whose name begins with ~ are those of an export."
			continue
		}
		one := mappedColumn{Input: columnInput + strconv.Itoa(i), Name: name}
		if guess {
			one.To = p.guess(name, sample.Header)
		} else if to := r.PostFormValue(one.Input); p.hasChoice(to) {
			one.To = to
		}
		if len(sample.Rows) > 0 && i < len(sample.Rows[0].Cells) {
			one.Example = truncate(sample.Rows[0].Cells[i])
		}
		if one.Example != "" && (mayBeSecret(name) || mayBeSecret(one.To)) {
			one.Example = notShown
		}
		p.Columns = append(p.Columns, one)
	}
}

// notShown stands for a cell that may hold a password or a hash.
const notShown = "not shown"

// A column may hold secrets if its name contains one of secretParts anywhere, or one of secretWords
// as a whole word.
var (
	secretParts = []string{"pass", "pwd", "hash", "secret", "salt", "token", "kennwort", "contras", "senha", "wachtwoord", "парол", "密码", "パスワード"}
	secretWords = []string{"pw", "psw", "pin", "otp", "clave"}
)

// mayBeSecret reports whether a column of this name may hold passwords, hashes or other secrets.
func mayBeSecret(name string) bool {
	name = strings.ToLower(name)
	words := strings.FieldsFunc(name, func(c rune) bool { return !unicode.IsLetter(c) })
	return name != "password_changed" && (slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) }) ||
		slices.ContainsFunc(secretWords, func(word string) bool { return slices.Contains(words, word) }))
}

// hasChoice reports whether there is a choice with a name.
func (p *mappingPage) hasChoice(name string) bool {
	return slices.ContainsFunc(p.Groups, func(g choiceGroup) bool {
		return slices.ContainsFunc(g.Choices, func(c namedChoice) bool { return c.Name == name })
	})
}

// guess returns what a column becomes if its operator chooses nothing: the choice that has its
// name, or else one whose name differs only in case and in the characters between words. It returns
// "" if there is none, or if another column of the header has exactly that name or becomes that
// already.
func (p *mappingPage) guess(column string, header []string) string {
	plain := func(name string) string {
		return strings.Map(func(c rune) rune {
			if strings.ContainsRune(" -_.", c) {
				return -1
			}
			return c
		}, strings.ToLower(name))
	}
	similar := ""
	for _, g := range p.Groups {
		for _, c := range g.Choices {
			switch {
			case c.Name == column:
				return column
			case similar == "" && plain(c.Name) == plain(column):
				similar = c.Name
			}
		}
	}
	if slices.Contains(header, similar) || slices.ContainsFunc(p.Columns, func(other mappedColumn) bool { return other.To == similar }) {
		return ""
	}
	return similar
}

// columns returns what each column becomes, in the form that an import takes.
func (p *mappingPage) columns(header []string) map[string]string {
	all := map[string]string{}
	for _, one := range p.Columns {
		all[one.Name] = one.To
	}
	if slices.Contains(header, "") {
		all[""] = ""
	}
	return all
}

// preview fills in the first accounts, and what an import would do with them, without writing
// anything. problem says in words why there can be no import with these columns.
func (p *mappingPage) preview(ctx context.Context, db *userdb.DB, u upload, sample transfer.Sample) (report transfer.Report, problem string, err error) {
	to := map[string]string{}
	for _, one := range p.Columns {
		if to[one.Name] = one.To; one.To != "" {
			p.Fields = append(p.Fields, one.To)
		}
	}
	refused := map[int64]string{}
	o := u.options(true)
	o.Refused = func(line int64, reason string) { refused[line] = reason }
	report, err = transfer.Import(ctx, db, bytes.NewReader(sample.Text), o)
	if errors.Is(err, transfer.ErrInput) {
		problem, err = capitalize(inputError(err).Error())+".", nil
	}
	for _, line := range sample.Rows {
		row := previewRow{Line: line.Line, Refused: refused[line.Line]}
		for i, text := range line.Cells {
			name := to[sample.Header[i]]
			if name == "" {
				continue
			}
			if text = truncate(text); text != "" && mayBeSecret(name) {
				text = notShown
			}
			row.Cells = append(row.Cells, cell{Column: name, Text: text})
		}
		// A line that could not be split has no cells.
		for _, field := range p.Fields[min(len(row.Cells), len(p.Fields)):] {
			row.Cells = append(row.Cells, cell{Column: field})
		}
		p.Rows = append(p.Rows, row)
	}
	return report, problem, err
}

// columnChoices returns what a column can become in an import of a type.
func columnChoices(t schema.Type, manyTypes bool) []choiceGroup {
	fields := choiceGroup{Label: "Fields", Choices: []namedChoice{{t.Primary, t.Primary + " (the UID)"}}}
	var verified []namedChoice
	for _, name := range fieldNames(t) {
		if name == t.Primary {
			continue
		}
		fields.Choices = append(fields.Choices, namedChoice{name, name})
		if t.Fields[name].HasAddresses() {
			verified = append(verified, namedChoice{"verified:" + name, name + " is verified (true or false)"})
		}
	}
	for _, name := range tertiaryNames(t) {
		fields.Choices = append(fields.Choices, namedChoice{name, name})
	}
	others := choiceGroup{Label: "Others", Choices: append(verified,
		namedChoice{"password", "hash of the password"}, namedChoice{"clear_password", "password itself"}, namedChoice{"password_changed", "date of the password"},
		namedChoice{"disabled", "disabled (a date, or true or false)"}, namedChoice{"!disabled", "enabled (true or false)"}, namedChoice{"disabled_until", "disabled until (a date)"})}
	if manyTypes {
		others.Choices = append(others.Choices, namedChoice{"~isa", "type of the account"})
	}
	others.Choices = slices.DeleteFunc(others.Choices, func(c namedChoice) bool {
		return slices.ContainsFunc(fields.Choices, func(f namedChoice) bool { return f.Name == c.Name })
	})
	return []choiceGroup{fields, others}
}

// tertiaryNames returns the sorted names of the tertiary records of a type.
func tertiaryNames(t schema.Type) (all []string) {
	for name := range t.Tertiary {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
