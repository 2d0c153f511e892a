package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on what the page of a job lists. Counts include everything.
const (
	maxProblems = 200
	maxRefused  = 50
)

// maxRejects is how many bytes of refused lines a job writes to its file. Tests lower it.
var maxRejects int64 = 64 << 20

// A problemLine describes a problem that a check found.
type problemLine struct {
	Code, Key, Text, Meaning string
	Repaired, Repairable     bool
}

// A refusedLine describes a line that an import refused.
type refusedLine struct {
	Line   int64
	Reason string
}

// checkJob starts a job that checks all accounts and, if repair is set, repairs them. Like the
// other methods that start jobs, it returns ErrJobExists if a job with the ID has begun, and uses
// an ID of its own if id is "".
func (r *runner) checkJob(ctx context.Context, db *userdb.DB, id, by string, repair bool) (admin.Job, error) {
	title := "Check of all accounts"
	if repair {
		title = "Repair of all accounts"
	}
	return r.begin(ctx, admin.Job{ID: id, Kind: "check", By: by, Title: title}, detail{}, func(ctx context.Context, w *task) (string, error) {
		n, repaired := 0, 0
		for p, err := range check.Run(ctx, db, check.Options{Repair: repair, Progress: w.setProgress}) {
			if err != nil {
				return checkText(n, repaired), err
			}
			n++
			if p.Repaired {
				repaired++
			}
			w.update(func(d *detail) { d.addProblem(p) })
		}
		return checkText(n, repaired), nil
	})
}

// addProblem counts a problem that a check found, and lists it unless the list is full.
func (d *detail) addProblem(p check.Problem) {
	if d.Codes == nil {
		d.Codes = map[string]int{}
	}
	if d.Codes[p.Code]++; len(d.Problems) < maxProblems {
		d.Problems = append(d.Problems, problemLine{p.Code, p.Key, p.Text, problemMeaning(p), p.Repaired, check.Repairs(p.Code)})
	}
}

func checkText(n, repaired int) string {
	text := "Nothing is wrong."
	if n > 0 {
		text = "Found " + pluralize(n, "problem") + "."
	}
	if repaired > 0 {
		text += " Repaired " + pluralize(repaired, "problem") + "."
	}
	return text
}

// problemMeaning returns what a problem means for the owners of the accounts.
func problemMeaning(p check.Problem) string {
	switch p.Invariant {
	case 1:
		return "An account cannot be found by an identifier that it has."
	case 2:
		return "Two accounts have the same identifier. Somebody has to decide whose it is (userdb check --repair --keep)."
	case 3:
		return "A record is not a whole account."
	case 4:
		return "Something is left over that belongs to no account. It may make an identifier unavailable."
	case 5:
		return "A list may miss an account, or show one that does not belong there."
	}
	if p.Severity == check.SeverityWarning {
		return "The accounts are fine, but this may not be intended."
	}
	return "Something that accounts need is missing or cannot be read."
}

// exportFile is the name of the file that an export writes.
const exportFile = "accounts.jsonl"

// exportJob starts a job that writes the accounts of a type, or all accounts if typ is "", to a
// file.
func (r *runner) exportJob(ctx context.Context, db *userdb.DB, id, by, typ string) (admin.Job, error) {
	title := "Export of all accounts"
	if typ != "" {
		title = "Export of type " + typ
		var err error
		if db, err = db.With(schema.Schema{Types: map[string]schema.Type{typ: db.Schema().Types[typ]}}); err != nil {
			return admin.Job{}, err
		}
	}
	return r.begin(ctx, admin.Job{ID: id, Kind: "export", By: by, Title: title}, detail{}, func(ctx context.Context, w *task) (string, error) {
		file, err := r.create(w.ID, exportFile)
		if err != nil {
			return "", err
		}
		out := bufio.NewWriterSize(file, 1<<16)
		report, err := transfer.Export(ctx, db, out, transfer.ExportOptions{Progress: func(done int64) { w.setProgress(done, 0) }})
		err = errors.Join(err, out.Flush(), file.Close())
		w.setProgress(report.Read, report.Read)
		if err != nil {
			return "", err
		}
		w.update(func(d *detail) { d.Files = []string{exportFile} })
		text := "Wrote " + accountsText(report.Read) + "."
		if report.Refused > 0 {
			text += " " + accountsText(report.Refused) + " cannot be read. The Check page says which."
		}
		return text, nil
	})
}

// An upload holds a file of accounts that an operator has sent, and how to import it.
type upload struct {
	Path, Name      string
	Type, Duplicate string
	CSV             bool
	Columns         map[string]string // fields of CSV columns, by column; "" leaves one out
	Import          string            // ID of the job that imports it after the dry run
}

// options returns how to import the upload.
func (u upload) options(dry bool) transfer.ImportOptions {
	o := transfer.ImportOptions{Type: u.Type, CSV: u.CSV, OnDuplicate: u.Duplicate, DryRun: dry, HidePasswords: true}
	for name, to := range u.Columns {
		if to == "" {
			o.Ignore = append(o.Ignore, name)
			continue
		}
		if o.Map == nil {
			o.Map = map[string]string{}
		}
		o.Map[name] = to
	}
	return o
}

// importJob starts a job that imports an upload or, if dry is set, reports what an import would do.
// The error is errElsewhere if the upload has been removed. An upload is imported once.
func (r *runner) importJob(ctx context.Context, db *userdb.DB, by string, u upload, dry bool) (admin.Job, error) {
	title, id, d := "Import of "+u.Name+" as type "+u.Type, u.Import, detail{}
	if dry {
		u.Import = admin.NewJobID()
		title, id, d = "Dry run of "+u.Name+" as type "+u.Type, "", detail{Upload: u}
	}
	// The file is opened first, because begin removes it if enough later dry runs have ended.
	file, err := os.Open(u.Path)
	if errors.Is(err, os.ErrNotExist) {
		err = errElsewhere
	}
	if err != nil {
		return admin.Job{}, err
	}
	j, err := r.begin(ctx, admin.Job{ID: id, Kind: "import", By: by, Title: title}, d, func(ctx context.Context, w *task) (string, error) {
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return "", err
		}
		kept, err := r.create(w.ID, u.rejectsName())
		if err != nil {
			return "", err
		}
		defer kept.Close()
		rejects := &rejectsFile{file: kept, left: maxRejects}
		o := u.options(dry)
		o.Rejects, o.Refused = rejects, w.addRefused
		report, err := transfer.Import(ctx, db, &meteredFile{File: file, read: func(n int64) { w.setProgress(min(n, info.Size()), info.Size()) }}, o)
		text := importText(report, dry)
		if report.Refused > 0 {
			w.update(func(d *detail) { d.Files = []string{u.rejectsName()} })
		}
		if rejects.omitted > 0 {
			text += " The file of refused lines is full: it lacks the last " + formatNumber(rejects.omitted) + "."
		}
		if err != nil {
			return text, inputError(err)
		}
		w.setProgress(info.Size(), info.Size())
		return text, nil
	})
	if err != nil {
		_ = file.Close() // it was only read
	}
	return j, err
}

// A rejectsFile is a file that keeps the first refused lines, and counts those that no longer fit.
type rejectsFile struct {
	file    *os.File
	left    int64 // bytes that still fit
	omitted int64
}

// Write writes a whole line, or counts it.
func (f *rejectsFile) Write(line []byte) (int, error) {
	if f.omitted > 0 || int64(len(line)) > f.left {
		f.omitted++
		return len(line), nil
	}
	n, err := f.file.Write(line)
	f.left -= int64(n)
	return n, err
}

func (w *task) addRefused(line int64, reason string) {
	w.update(func(d *detail) {
		if len(d.Refused) < maxRefused {
			d.Refused = append(d.Refused, refusedLine{line, reason})
		}
	})
}

// rejectsName returns the name of the file for refused lines.
func (u upload) rejectsName() string {
	if u.CSV {
		return "refused.csv"
	}
	return "refused.jsonl"
}

func importText(r transfer.Report, dry bool) string {
	words := "%s read: %s created, %s updated, %s left unchanged, %s refused."
	if dry {
		words = "%s read: %s would be created, %s updated, %s left unchanged, %s refused."
	}
	text := fmt.Sprintf(words, linesText(r.Read), formatNumber(r.Created), formatNumber(r.Updated), formatNumber(r.Skipped), formatNumber(r.Refused))
	for _, note := range r.Notes() {
		text += " " + note + "."
	}
	return text
}

func linesText(n int64) string {
	if n == 1 {
		return "1 line"
	}
	return formatNumber(n) + " lines"
}

// inputError returns an error about the input file without the text of transfer.ErrInput, which
// would mean nothing to the operator. It returns other errors unchanged.
func inputError(err error) error {
	if errors.Is(err, transfer.ErrInput) {
		return errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), transfer.ErrInput.Error()+": "), "\n", "; "))
	}
	return err
}

// A meteredFile is a file that reports how much of it has been read.
type meteredFile struct {
	*os.File
	n    atomic.Int64
	read func(n int64)
}

func (m *meteredFile) Read(b []byte) (int, error) {
	n, err := m.File.Read(b)
	m.read(m.n.Add(int64(n)))
	return n, err
}

// Seek implements [io.Seeker], because an import reads the header of a file before it begins.
func (m *meteredFile) Seek(offset int64, whence int) (int64, error) {
	at, err := m.File.Seek(offset, whence)
	m.n.Store(at)
	return at, err
}

// WriteTo hides the method of the file, which would bypass Read.
func (m *meteredFile) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{m}) }
