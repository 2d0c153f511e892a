package ci_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/csvtext"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/hashpool"
	"github.com/coffeenode/userdb/internal/privatefile"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/validate"
	"github.com/coffeenode/userdb/web"
)

// publicErrors holds all errors of the packages that programs can import, by package and name.
// docs/errors.md lists their codes.
var publicErrors = map[string]error{
	"userdb.ErrOutcomeUnknown":  userdb.ErrOutcomeUnknown,
	"userdb.ErrUnconfirmed":     userdb.ErrUnconfirmed,
	"userdb.ErrUnavailable":     userdb.ErrUnavailable,
	"userdb.BusyError":          &userdb.BusyError{},
	"userdb.ErrUnsuitable":      userdb.ErrUnsuitable,
	"userdb.ErrIndexBuilding":   userdb.ErrIndexBuilding,
	"userdb.ErrFileFull":        userdb.ErrFileFull,
	"userdb.ErrFileLocked":      userdb.ErrFileLocked,
	"userdb.ErrFileExposed":     userdb.ErrFileExposed,
	"userdb.ErrFileDamaged":     userdb.ErrFileDamaged,
	"userdb.ErrCorrupt":         userdb.ErrCorrupt,
	"userdb.ErrSchemaMismatch":  userdb.ErrSchemaMismatch,
	"userdb.ErrURL":             userdb.ErrURL,
	"userdb.ErrCache":           userdb.ErrCache,
	"userdb.ErrCursor":          userdb.ErrCursor,
	"userdb.ErrInvalid":         userdb.ErrInvalid,
	"userdb.ErrDuplicate":       userdb.ErrDuplicate,
	"userdb.ErrConflict":        userdb.ErrConflict,
	"userdb.ErrNotFound":        userdb.ErrNotFound,
	"userdb.ErrLogin":           userdb.ErrLogin,
	"userdb.ErrFactor":          userdb.ErrFactor,
	"userdb.FactorError":        &userdb.FactorError{},
	"userdb.ErrNotVerified":     userdb.ErrNotVerified,
	"userdb.ErrUnproven":        userdb.ErrUnproven,
	"userdb.ErrTooManyAttempts": userdb.ErrTooManyAttempts,
	"userdb.ErrNoHistory":       userdb.ErrNoHistory,
	"userdb.WaitError":          &userdb.WaitError{},
	"userdb.ErrUnmarshal":       userdb.ErrUnmarshal,
	"userdb.FieldError":         &userdb.FieldError{Err: userdb.ErrDuplicate},
	"hints.ErrHint":             hints.ErrHint,
	"hints.Error":               &hints.Error{},
	"recordkey.ErrSyntax":       recordkey.ErrSyntax,
	"recordkey.SyntaxError":     &recordkey.SyntaxError{},
	"schema.ErrSchema":          schema.ErrSchema,
	"schema.Error":              &schema.Error{},
	"schema.ErrValue":           schema.ErrValue,
	"schema.ValueError":         &schema.ValueError{},
	"validate.ErrRule":          validate.ErrRule,
	"validate.Error":            &validate.Error{},
	"password.ErrPolicy":        password.ErrPolicy,
	"password.PolicyError":      &password.PolicyError{},
	"password.ErrHash":          password.ErrHash,
	"password.HashError":        &password.HashError{},
	"password.ErrOptions":       password.ErrOptions,
	"check.ErrKeep":             check.ErrKeep,
	"inspect.ErrFormat":         inspect.ErrFormat,
	"migrate.ErrCollision":      migrate.ErrCollision,
	"migrate.ErrNotEmpty":       migrate.ErrNotEmpty,
	"migrate.ErrNamespace":      migrate.ErrNamespace,
	"transfer.ErrLost":          transfer.ErrLost,
	"transfer.ErrInput":         transfer.ErrInput,
	"transfer.ColumnError":      &transfer.ColumnError{},
	"web.ErrMailQueueFull":      web.ErrMailQueueFull,
	"web.ErrMailQueueClosed":    web.ErrMailQueueClosed,
	"web.ErrUnlinked":           web.ErrUnlinked,
	"transfer.ReadError":        &transfer.ReadError{Err: userdb.ErrUnavailable},
	"admin.ErrAlreadySetUp":     admin.ErrAlreadySetUp,
	"admin.ErrHasFactor":        admin.ErrHasFactor,
	"admin.ErrKey":              admin.ErrKey,
	"admin.ErrJobExists":        admin.ErrJobExists,
	"admin.ErrOperatorDisabled": admin.ErrOperatorDisabled,
	"admin.ErrTooManyKeys":      admin.ErrTooManyKeys,
	"serve.Problem":             &serve.Problem{Code: "scope"},
	"scim.Error":                &scim.Error{Status: 404},
	"scim.ErrOptions":           scim.ErrOptions,
	"scim.ErrPartial":           scim.ErrPartial,
}

// variableCodes holds the errors whose code depends on what they contain, with the code of their
// example in publicErrors.
var variableCodes = map[string]userdb.Code{
	"userdb.FieldError": "duplicate", "transfer.ReadError": "unavailable", "serve.Problem": "scope", "scim.Error": "not_found",
}

// internalErrors holds the errors of internal packages. Those that never reach a caller have
// CodeOther.
var internalErrors = map[string]struct {
	err  error
	code userdb.Code
}{
	"change.ErrFingerprint":    {change.ErrFingerprint, userdb.CodeOther},
	"change.ErrInvalid":        {change.ErrInvalid, userdb.CodeInvalid},
	"change.ErrUnproven":       {change.ErrUnproven, userdb.CodeUnproven},
	"csvtext.ErrOpen":          {csvtext.ErrOpen, userdb.CodeOther},
	"csvtext.ErrQuote":         {csvtext.ErrQuote, userdb.CodeOther},
	"connect.ErrURL":           {connect.ErrURL, userdb.CodeUsage},
	"connect.ErrShared":        {connect.ErrShared, userdb.CodeOther},
	"embedded.ErrLocked":       {embedded.ErrLocked, userdb.CodeUnavailable},
	"embedded.ErrServed":       {embedded.ErrServed, userdb.CodeOther},
	"embedded.ErrFull":         {embedded.ErrFull, userdb.CodeUnavailable},
	"embedded.ErrDamaged":      {embedded.ErrDamaged, userdb.CodeCorrupt},
	"embedded.DamageError":     {&embedded.DamageError{}, userdb.CodeCorrupt},
	"embedded.ErrExposed":      {embedded.ErrExposed, userdb.CodeUnavailable},
	"embedded.ErrUnsaved":      {embedded.ErrUnsaved, userdb.CodeOther},
	"embedded.ErrPartlySaved":  {embedded.ErrPartlySaved, userdb.CodeOther},
	"embedded.ErrWaiting":      {embedded.ErrWaiting, userdb.CodeOther},
	"embedded.ErrClosed":       {embedded.ErrClosed, userdb.CodeOther},
	"hashpool.ErrBusy":         {hashpool.ErrBusy, userdb.CodeOther},
	"hashpool.BusyError":       {&hashpool.BusyError{}, userdb.CodeOther},
	"hashpool.ErrClosed":       {hashpool.ErrClosed, userdb.CodeOther},
	"privatefile.ErrUntrusted": {privatefile.ErrUntrusted, userdb.CodeOther},
	"privatefile.ErrReadable":  {privatefile.ErrReadable, userdb.CodeOther},
	"store.ErrNotFound":        {store.ErrNotFound, userdb.CodeNotFound},
	"store.ErrDuplicate":       {store.ErrDuplicate, userdb.CodeDuplicate},
	"store.ErrFull":            {store.ErrFull, userdb.CodeOther},
	"store.ErrConflict":        {store.ErrConflict, userdb.CodeConflict},
	"store.ErrIndexBuilding":   {store.ErrIndexBuilding, userdb.CodeUnavailable},
	"store.ErrSchemaMismatch":  {store.ErrSchemaMismatch, userdb.CodeSchemaMismatch},
	"store.MismatchError":      {&store.MismatchError{}, userdb.CodeSchemaMismatch},
	"store.ErrCorrupt":         {store.ErrCorrupt, userdb.CodeCorrupt},
	"store.CorruptError":       {&store.CorruptError{}, userdb.CodeCorrupt},
	"store.ErrUnavailable":     {store.ErrUnavailable, userdb.CodeUnavailable},
	"store.ErrOutcomeUnknown":  {store.ErrOutcomeUnknown, userdb.CodeUnavailable},
	"store.ErrCursor":          {store.ErrCursor, userdb.CodeUsage},
	"store.ErrUnsuitable":      {store.ErrUnsuitable, userdb.CodeUnavailable},
	"store.ErrCache":           {store.ErrCache, userdb.CodeUsage},
	"store.ErrUnconfirmed":     {store.ErrUnconfirmed, userdb.CodeUnavailable},
	"sealed.ErrKey":            {sealed.ErrKey, userdb.CodeOther},
	"store.ErrReply":           {store.ErrReply, userdb.CodeOther},
	"store.FieldError":         {&store.FieldError{Err: store.ErrDuplicate}, userdb.CodeDuplicate},
	"throttle.ErrMaybeCounted": {throttle.ErrMaybeCounted, userdb.CodeOther},
	"throttle.DamagedError":    {throttle.DamagedError(0), userdb.CodeOther},
	"redisx.ErrAbandoned":      {redisx.ErrAbandoned, userdb.CodeOther},
	"redisx.UnknownError":      {&redisx.UnknownError{Cause: context.Canceled}, userdb.CodeUnavailable},
	"figures.ErrBusy":          {nil, ""}, // only serve may import it: serve/codes_test.go
}

// exportedErrors returns the names of all error variables and error types that packages of this
// module export, with the folder of each. It leaves out helpers of tests, benchmarks and examples.
func exportedErrors(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "testdata", "node_modules", "bench", "redistest", "examples"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range errorNames(file) {
			if ast.IsExported(name) {
				found[file.Name.Name+"."+name] = filepath.ToSlash(filepath.Dir(path))
			}
		}
		return nil
	})
	if err != nil || len(found) < 50 {
		t.Fatalf("found %d exported errors, %v; want at least 50", len(found), err)
	}
	return found
}

// errorNames returns the names of the variables of a file that begin with Err, and those of the
// types with a method Error.
func errorNames(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				value, is := spec.(*ast.ValueSpec)
				if !is || decl.Tok != token.VAR {
					continue
				}
				for _, name := range value.Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		case *ast.FuncDecl:
			if decl.Recv == nil || decl.Name.Name != "Error" || len(decl.Type.Params.List) > 0 {
				continue
			}
			recv := decl.Recv.List[0].Type
			if pointer, is := recv.(*ast.StarExpr); is {
				recv = pointer.X
			}
			if name, is := recv.(*ast.Ident); is {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// TestErrorsHaveCodes checks that the tables above list every error that a package exports, and
// that internal errors have the codes listed.
func TestErrorsHaveCodes(t *testing.T) {
	found := exportedErrors(t)
	for name, folder := range found {
		_, public := publicErrors[name]
		_, internal := internalErrors[name]
		if internal != strings.Contains(folder, "internal/") || public == internal {
			t.Errorf("%s exports %s, which must be in one of the tables of this test, with its code", folder, name)
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(publicErrors)), slices.Collect(maps.Keys(internalErrors))) {
		if found[name] == "" {
			t.Errorf("a table of this test has %s, which no package exports", name)
		}
	}
	for name, want := range internalErrors {
		if got := userdb.CodeOf(want.err); got != want.code {
			t.Errorf("%s has the code %s, want %s", name, got, want.code)
		}
	}
}

var (
	codeRow  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]+ \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|$")
	errorRow = regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Za-z]+)` \\| ([^|]+) \\|$")
)

// TestErrorPage checks that docs/errors.md agrees with userdb's table of codes and with
// publicErrors.
func TestErrorPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var codes []userdb.Code
	for _, m := range codeRow.FindAllStringSubmatch(string(text), -1) {
		code := userdb.Code(m[1])
		codes = append(codes, code)
		status, scimType := code.SCIM()
		inSCIM := strconv.Itoa(status)
		if scimType != "" {
			inSCIM += " `" + scimType + "`"
		}
		exit := strconv.Itoa(code.ExitStatus())
		if m[2] == "–" && exit == "1" {
			exit = m[2] // the page has a dash for a code that occurs only over HTTP
		}
		if want := []string{exit, strconv.Itoa(code.HTTPStatus()), inSCIM}; !slices.Equal(m[2:], want) {
			t.Errorf("the row for %s has %q, want %q", code, m[2:], want)
		}
	}
	if !slices.Equal(codes, userdb.Codes()) {
		t.Errorf("the page has the codes\n%q\nwant\n%q", codes, userdb.Codes())
	}
	listed := map[string]bool{}
	for _, m := range errorRow.FindAllStringSubmatch(string(text), -1) {
		name, got := m[1], userdb.CodeOf(publicErrors[m[1]])
		listed[name] = true
		if want, is := variableCodes[name]; is {
			if got != want || !strings.Contains(m[2], "its") && !strings.Contains(m[2], "that of") {
				t.Errorf("the row for %s has %q, want a text that says where its code comes from; the example in this test has the code %s, want %s", name, m[2], got, want)
			}
			continue
		}
		if m[2] != "`"+string(got)+"`" {
			t.Errorf("the row for %s has %s, want `%s`", name, m[2], got)
		}
	}
	for name := range publicErrors {
		if !listed[name] {
			t.Errorf("the page has no row for %s", name)
		}
	}
}
