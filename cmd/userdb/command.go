package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A command is one verb. Run ends with its context.
type command interface {
	Run(ctx context.Context, s *session) error
}

// globals are the flags that every command has.
type globals struct {
	Store     string         `placeholder:"URL" env:"USERDB_STORE" help:"Where the records are: file:PATH, memory:, redis://…, rediss://…, unix://…, redis+sentinel://…, redis+cluster://…; without it, a file in the user's data directory."`
	Schema    string         `placeholder:"FILE" env:"USERDB_SCHEMA" help:"Schema JSON; without it the one stored in the database counts, else the built-in one."`
	Namespace string         `placeholder:"A/B" env:"USERDB_NAMESPACE" help:"The view of one namespace; A/B is B inside A."`
	Type      string         `placeholder:"T" default:"user" help:"The type that is meant where a hint names none (user)."`
	JSON      bool           `help:"One JSON value per line on standard output, and errors as JSON."`
	Timeout   *time.Duration `placeholder:"D" help:"How long the whole command may take, such as 5s, 2m or 1d; 0 is without end (30s; without end for check, schema apply, export, import, namespace, hint and key)."`
	Help      bool           `short:"h" help:"Show what a command does, with examples; for login, passwd and token redeem that is 'userdb help COMMAND'."`
}

// cli is the grammar: one field for each verb, in the order in which --help shows them.
type cli struct {
	globals

	Create createCmd `cmd:"" group:"Entries" help:"Make an entry."`
	Get    getCmd    `cmd:"" group:"Entries" help:"Print entries."`
	Set    setCmd    `cmd:"" group:"Entries" help:"Set facets of an entry."`
	Unset  unsetCmd  `cmd:"" group:"Entries" help:"Unset facets of an entry."`
	Delete deleteCmd `cmd:"" group:"Entries" help:"Delete an entry and all that belongs to it."`
	Tags   tagsCmd   `cmd:"" group:"Entries" help:"The tags of entries."`

	Login    loginCmd    `cmd:"" group:"Passwords" help:"Check an identifier and a password."`
	Passwd   passwdCmd   `cmd:"" group:"Passwords" help:"Set the password of an entry."`
	Disable  disableCmd  `cmd:"" group:"Passwords" help:"Keep an entry from logging in."`
	Enable   enableCmd   `cmd:"" group:"Passwords" help:"Let an entry log in again."`
	Token    tokenCmd    `cmd:"" group:"Passwords" help:"Tokens that are good once."`
	Password passwordCmd `cmd:"" group:"Passwords" help:"What a password is worth."`

	List  listCmd  `cmd:"" group:"Listings" help:"List entries of a type."`
	Count countCmd `cmd:"" group:"Listings" help:"Count entries of a type."`
	Keys  keysCmd  `cmd:"" group:"Listings" help:"List record keys, sorted."`
	Walk  walkCmd  `cmd:"" group:"Listings" help:"List record keys as they are found."`
	Dump  dumpCmd  `cmd:"" group:"Listings" help:"Show records with what is in them."`

	Check  checkCmd  `cmd:"" group:"Care" help:"Look for damage."`
	Export exportCmd `cmd:"" group:"Care" help:"Write entries as JSON lines."`
	Import importCmd `cmd:"" group:"Care" help:"Bring entries in, from JSON lines or CSV."`
	Remove removeCmd `cmd:"" group:"Care" help:"Remove records by pattern."`
	Schema schemaCmd `cmd:"" group:"Care" help:"The schema in force."`

	Namespaces namespaceCmd `cmd:"" name:"namespace" group:"Care" help:"Namespaces: list, copy, drop."`

	Hint       hintCmd       `cmd:"" group:"Tools" help:"Show what a hint means."`
	Key        keyCmd        `cmd:"" group:"Tools" help:"Take record keys apart, escape and unescape."`
	Completion completionCmd `cmd:"" group:"Tools" help:"Print the completion script of a shell."`
	Version    versionCmd    `cmd:"" group:"Tools" help:"Print the version."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
}

// patient commands have no --timeout of their own accord.
type patient interface{ patient() }

type versionCmd struct{}

func (*versionCmd) Help() string {
	return `Examples:
  userdb version
  userdb version --json`
}

// build is what is known of how the program was made.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

func (*versionCmd) Run(_ context.Context, s *session) error {
	b := readBuild()
	words := []string{"userdb", b.Version}
	if b.Revision != "" {
		words = append(words, b.Revision, b.Time)
	}
	if b.Modified {
		words = append(words, "modified")
	}
	return s.out.say(b, strings.Join(append(words, b.Go, b.Platform), " "))
}
