package transfer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/coffeenode/userdb/password"
)

// A productUsers reads the export of a product: accounts in a list, in the list "users" of an
// object, or one after the other.
type productUsers struct {
	product
	columns  *columns
	firebase password.FirebaseScrypt
	keepIDs  bool    // see ImportOptions.KeepIDs
	model    *string // the Django model of the accounts; empty until the first account is read
	input    rowText
	dec      *json.Decoder
	started  bool
	inList   bool   // within the list of accounts
	inObject bool   // the list is in an object
	first    string // the account that findList has read, if there is no list
	lines    int64  // lines of text read and discarded
	size     int64  // size of those lines
	counted  int64  // the part of size already counted in line.size of earlier accounts
}

// maxAccount is the maximum length of an account in bytes.
const maxAccount = maxImportLine / 2

func newProductUsers(in *bufio.Reader, offset int64, im *importer) *productUsers {
	input := rowText{r: in, offset: offset, tooLong: "an account of over 16 MiB"}
	s := &productUsers{product: productsByName[im.o.From], columns: &im.columns, firebase: im.firebase, keepIDs: im.o.KeepIDs, model: &im.model, input: input}
	s.dec = json.NewDecoder(&s.input)
	return s
}

func (s *productUsers) next(l *line) (more bool, err error) {
	account, more, err := s.nextAccount()
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = errors.New("the list of accounts does not end")
	}
	if err != nil {
		err = cmp.Or(s.input.err, fmt.Errorf("%w: %w", ErrInput, err))
		return false, &ReadError{Line: s.lines + 1, Offset: s.input.offset + s.size, Err: err}
	}
	l.raw = account
	l.no = s.lines + 1 + int64(bytes.Count(s.text()[:max(0, len(s.text())-len(account))], []byte("\n")))
	if len(account) > maxAccount {
		l.raw, l.err = account[:100], errors.New("it is over 8 MiB")
	}
	s.discardRead()
	l.size, s.counted = s.size-s.counted, s.size
	return more, nil
}

// text returns the text that was read but not discarded.
func (s *productUsers) text() []byte { return s.input.text.Bytes()[:s.dec.InputOffset()-s.size] }

func (s *productUsers) discardRead() {
	text := s.input.text.Next(len(s.text()))
	s.size += int64(len(text))
	s.lines += int64(bytes.Count(text, []byte("\n")))
}

func (s *productUsers) nextAccount() (text string, more bool, err error) {
	if !s.started {
		s.started = true
		if err := s.findList(); err != nil {
			return "", false, err
		}
	}
	if s.first != "" {
		text, s.first = s.first, ""
		return text, true, nil
	}
	if s.inList && !s.dec.More() {
		return "", false, s.readEnd()
	}
	var raw json.RawMessage
	err = s.dec.Decode(&raw)
	if err == io.EOF && !s.inList {
		return "", false, nil
	}
	return string(raw), err == nil, err
}

// findList reads up to the list of accounts, or one account if there is no list.
func (s *productUsers) findList() error {
	token, err := s.dec.Token()
	switch {
	case err == io.EOF:
		s.discardRead()
		return nil
	case err == nil && token == json.Delim('['):
		s.inList = true
		return nil
	case err == nil && token != json.Delim('{'):
		return errors.New("neither a list of accounts nor an object")
	}
	for err == nil && s.dec.More() {
		if s.inObject, err = s.readMember(); s.inObject {
			s.inList = true
			return err
		}
	}
	if err == nil {
		_, err = s.dec.Token()
	}
	if err == nil && s.size > 0 {
		err = errors.New("no list of accounts, but an account of over 8 MiB")
	}
	s.first = strings.TrimSpace(string(s.text()))
	return err
}

// readMember skips a member of the object that may hold the list. If the member is the list,
// readMember stops at its first account.
func (s *productUsers) readMember() (isList bool, err error) {
	name, err := s.dec.Token()
	switch {
	case err != nil:
		return false, err
	case name != "users":
		return false, s.skipValue()
	case s.inObject:
		return false, errors.New("users appears twice")
	}
	token, err := s.dec.Token()
	if err == nil && token != json.Delim('[') {
		err = errors.New("users is not a list")
	}
	return true, err
}

// skipValue skips a value of any length.
func (s *productUsers) skipValue() error {
	for depth := 0; ; {
		token, err := s.dec.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if s.inObject || len(s.text()) > maxAccount {
			s.discardRead()
		}
		if depth == 0 {
			return nil
		}
	}
}

// readEnd reads what follows the list.
func (s *productUsers) readEnd() error {
	_, err := s.dec.Token()
	s.inList = false
	for err == nil && s.inObject && s.dec.More() {
		_, err = s.readMember()
	}
	if err == nil && s.inObject {
		_, err = s.dec.Token()
	}
	if err == nil {
		if _, err = s.dec.Token(); err == io.EOF {
			return nil
		}
		err = cmp.Or(err, errors.New("there is more after the list of accounts"))
	}
	return err
}

func (s *productUsers) mayHaveClearPassword(l *line) bool {
	return s.clear != "" && strings.Contains(l.raw, s.clear)
}

func (s *productUsers) reject(w io.Writer, l *line) error {
	var flat bytes.Buffer
	if json.Compact(&flat, []byte(l.raw)) == nil {
		l = &line{no: l.no, raw: flat.String(), err: l.err}
	}
	return (&jsonLines{}).reject(w, l)
}
