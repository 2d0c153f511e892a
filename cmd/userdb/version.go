package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
)

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
