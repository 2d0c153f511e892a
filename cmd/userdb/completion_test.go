package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOffers(t *testing.T) {
	root := model(t)
	for _, tt := range []struct{ line, want string }{
		{"cr|", "create"},
		{"c|", "create count check completion"},
		{"tags |", "add remove list find"},
		{"--json tags l|", "list"},
		{"create |", "user"},
		{"create x|", ""},
		{"create user |", ""},
		{"create user --t|", "--tag --type --timeout"},
		{"delete x --y|", "--yes"},
		{"completion |", "bash zsh fish"},
		{"completion z|", "zsh"},
		{"completion bash |", ""},
		{"hint --as |", "entry user"},
		{"dump --format |", "long short keys"},
		{"get --schema |", ""},
		{"__c|", ""},
		{"nosuch l|", ""},
		{"version |", ""},
	} {
		before, _ := strings.CutSuffix(tt.line, "|")
		words := strings.Split(before, " ")
		var got []string
		for _, o := range offers(root, words) {
			got = append(got, o.word)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("offers(%s) = %s, want %s", tt.line, got, tt.want)
		}
	}
	if got := offers(root, nil); len(got) < 15 {
		t.Errorf("offers for nothing: %v", got)
	}
}

// The scripts are tried in the shells that are there.
func TestCompletionScripts(t *testing.T) {
	for shell, script := range map[string]string{
		"bash": "userdb() { " + program + ` "$@"; }` + "\n" + bashScript + `
COMP_WORDS=(userdb tags li) COMP_CWORD=2; _userdb; echo "${COMPREPLY[*]}"
COMP_WORDS=(userdb completion "") COMP_CWORD=2; _userdb; echo "${COMPREPLY[*]}"`,
		"zsh":  zshScript,
		"fish": "function userdb; " + program + " $argv; end\n" + fishScript + "\ncomplete -C 'userdb tags li' | cut -f1",
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{file}
			if shell == "zsh" {
				args = []string{"-n", file}
			}
			out, err := exec.Command(path, args...).CombinedOutput()
			want := map[string]string{"bash": "list\nbash zsh fish\n", "zsh": "", "fish": "list\n"}[shell]
			if err != nil || string(out) != want {
				t.Errorf("%s: %q, %v; want %q", shell, out, err, want)
			}
		})
	}
}
