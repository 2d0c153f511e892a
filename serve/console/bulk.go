package console

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// bulkKind is the kind of jobs that change several accounts.
const bulkKind = "accounts"

// maxSelected limits the accounts that a form can name. It is more than a page of a list has.
const maxSelected = 200

// A bulkQuestion asks whether to do something to several accounts.
type bulkQuestion struct {
	Do, Question, Button, Back string
	Inputs                     []input
}

// A bulkWork describes what to do with several accounts of a type.
type bulkWork struct {
	do, tag string
	uids    []string
}

// newBulkWork reads a form of selected accounts.
func newBulkWork(r *http.Request) bulkWork {
	w := bulkWork{r.PostFormValue("do"), strings.TrimSpace(r.PostFormValue("add")), nil}
	for _, uid := range r.PostForm["uid"] {
		if !slices.Contains(w.uids, uid) && len(w.uids) < maxSelected {
			w.uids = append(w.uids, uid)
		}
	}
	return w
}

// question returns a sentence that says what the work does, and the text of the button for it. Both
// are "" if there is nothing to do.
func (b bulkWork) question() (question, button string) {
	n, one := accountsText(int64(len(b.uids))), len(b.uids) == 1
	switch {
	case len(b.uids) == 0:
		return "", ""
	case b.do == "disable" && one:
		return "Nobody can sign in to " + n + " until it is enabled again. All its sessions and links end now.", "Disable " + n
	case b.do == "disable":
		return "Nobody can sign in to " + n + " until they are enabled again. All their sessions and links end now.", "Disable " + n
	case b.do == "enable" && one:
		return "The owner of " + n + " can sign in again, with the password that they had.", "Enable " + n
	case b.do == "enable":
		return "The owners of " + n + " can sign in again, with the password that they had.", "Enable " + n
	case b.do == "tag" && b.tag != "":
		return "The tag “" + b.tag + "” is added to " + n + ". Applications may give rights by tags.", "Add the tag to " + n
	case b.do == "export":
		return "A file with all that is stored about " + n + ", as JSON lines and without passwords, is made for you to download.", "Export " + n
	}
	return "", ""
}

// bulk does something to the selected accounts, as one job. It asks for confirmation first.
func (c *Console) bulk(w http.ResponseWriter, r *http.Request) {
	db, t, err := c.namedType(r, r.PostFormValue("type"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	work := newBulkWork(r)
	question, button := work.question()
	switch {
	case question == "":
		c.show(w, r, http.StatusUnprocessableEntity, page{Name: "message", Title: "Nothing was done", RailPath: "/console/types/" + t.Name(), Data: "Select accounts in the list, and name the tag if you add one."})
		return
	case r.PostFormValue(confirmName) == "":
		q := bulkQuestion{Do: work.do, Question: question, Button: button, Back: typePath(t.Name())}
		q.Inputs = []input{{Name: "type", Value: t.Name()}, {Name: "do", Value: work.do}, {Name: "add", Value: work.tag}, {Name: jobInput, Value: admin.NewJobID()}}
		for _, uid := range work.uids {
			q.Inputs = append(q.Inputs, input{Name: "uid", Value: uid})
		}
		c.show(w, r, http.StatusOK, page{Name: "bulk-confirm", Title: button + "?", RailPath: "/console/types/" + t.Name(), Data: q})
		return
	}
	j, err := c.jobs.bulkJob(r.Context(), db, t, admin.Job{ID: r.PostFormValue(jobInput), Kind: bulkKind, By: senderName(r), Title: button}, work)
	if errors.Is(err, errBusy) {
		c.show(w, r, http.StatusTooManyRequests, page{Name: "message", Title: "Nothing was done", Data: tooManyJobs})
		return
	}
	c.respondStarted(w, r, j, err, bulkKind, "")
}

// bulkJob starts a job that does something to several accounts.
func (r *runner) bulkJob(ctx context.Context, db *userdb.DB, t *userdb.Type, j admin.Job, b bulkWork) (admin.Job, error) {
	if b.do == "export" {
		j.Kind = "export"
	}
	return r.begin(ctx, j, detail{}, func(ctx context.Context, w *task) (string, error) {
		do := func(h hints.Hint) error { return b.apply(ctx, t, h) }
		if b.do == "export" {
			file, err := r.create(w.ID, exportFile)
			if err != nil {
				return "", err
			}
			defer file.Close()
			out := bufio.NewWriterSize(file, 1<<16)
			do = func(h hints.Hint) error {
				_, err := transfer.Export(ctx, db, out, transfer.ExportOptions{Only: h, Type: t.Name()})
				return errors.Join(err, out.Flush())
			}
		}
		res, err := b.each(do, func(n int) { w.setProgress(int64(n), int64(len(b.uids))) })
		switch {
		case b.do == "export" && err != nil: // its file is removed
			return "", err
		case b.do == "export":
			w.update(func(d *detail) { d.Files = []string{exportFile} })
		}
		return res.text(b.do), err
	})
}

// each calls do for each account, and progress with the number of accounts it has reached. It goes
// on if an account is missing or refused.
func (b bulkWork) each(do func(hints.Hint) error, progress func(int)) (res bulkResult, err error) {
	for i, uid := range b.uids {
		err := do(hints.UID(uid))
		refused, isRefused := errors.AsType[*userdb.FieldError](err)
		switch {
		case err == nil:
			res.done++
		case isAny(err, userdb.ErrNotFound, userdb.ErrCorrupt):
			res.missing++
		case isRefused:
			res.refused++
			res.reason = cmp.Or(res.reason, refused.Reason)
		default:
			return res, err
		}
		progress(i + 1)
	}
	return res, nil
}

// A bulkResult counts accounts by outcome. reason says why the first of the refused accounts was
// refused.
type bulkResult struct {
	done, missing, refused int
	reason                 string
}

// bulkTexts holds what was done, by the action of the form.
var bulkTexts = map[string]string{"disable": "Disabled ", "enable": "Enabled ", "tag": "Added the tag to ", "export": "Wrote "}

// text returns the result of an action in words.
func (r bulkResult) text(do string) string {
	text := bulkTexts[do] + accountsText(int64(r.done)) + "."
	switch {
	case r.missing == 1:
		text += " 1 account no longer exists or cannot be read."
	case r.missing > 1:
		text += " " + accountsText(int64(r.missing)) + " no longer exist or cannot be read."
	}
	switch {
	case r.refused == 1:
		text += " 1 account was refused: " + r.reason + "."
	case r.refused > 1:
		text += " " + accountsText(int64(r.refused)) + " were refused, the first because: " + r.reason + "."
	}
	return text
}

// apply does the work to one account. It gives no tag to an account whose address nobody has
// verified: in a list, such an account looks like that of the person who owns the address.
func (b bulkWork) apply(ctx context.Context, t *userdb.Type, h hints.Hint) (err error) {
	switch b.do {
	case "disable":
		return t.Disable(ctx, h)
	case "enable":
		return t.Enable(ctx, h)
	}
	e, err := t.Find(ctx, h)
	if err == nil && e.Unproven() {
		err = &userdb.FieldError{Err: userdb.ErrUnproven, Rule: "unproven", Reason: "nobody has verified its address; its own page can add a tag"}
	}
	if err == nil {
		_, err = t.Tags(h).Add(ctx, b.tag)
	}
	return err
}
