package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func model(t *testing.T) *kong.Node {
	t.Helper()
	parser, err := newParser(new(cli))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

func TestArrange(t *testing.T) {
	root := model(t)
	for _, tt := range []struct{ args, want string }{
		{"", "--"},
		{"get a b", "get -- a b"},
		{"get a --json b", "get --json -- a b"},
		{"--json get a", "get --json -- a"},
		{"--yes delete a", "delete --yes -- a"},
		{"--store x get a", "get --store=x -- a"},
		{"get a --store=x --store y", "get --store=x --store=y -- a"},
		{"get -- --json", "get -- --json"},
		{"--json -- get a", "get --json -- a"},
		{"-- tags -- list", "tags -- -- list"},
		{"tags --json list a", "tags list --json -- a"},
		{"tags a list", "tags -- a list"},
		{"get -", "get -- -"},
		{"get --store --json", "get --store --json --"},
		{"get --store", "get --store --"},
		{"get --nosuch a", "get --nosuch -- a"},
		{"create user --tag a b x=y", "create --tag=a --tag=b -- user x=y"},
		{"create user x=y --tag a b --tag c --json", "create --tag=a --tag=b --tag=c --json -- user x=y"},
		{"create --tag a user x=y", "create --tag=a -- user x=y"},
		{"--tag a create user x=y b", "create --tag=a -- user x=y b"},
		{"-h create", "create -h --"},
	} {
		got := strings.Join(arrange(root, strings.Fields(tt.args)).args(), " ")
		if got != tt.want {
			t.Errorf("arrange(%s) = %s, want %s", tt.args, got, tt.want)
		}
	}
}

// leaves are all commands.
func leaves(node *kong.Node) []*kong.Node {
	if len(node.Children) == 0 {
		return []*kong.Node{node}
	}
	var all []*kong.Node
	for _, child := range node.Children {
		all = append(all, leaves(child)...)
	}
	return all
}

func TestEveryCommandRuns(t *testing.T) {
	for _, leaf := range leaves(model(t)) {
		if _, ok := leaf.Target.Addr().Interface().(command); !ok {
			t.Errorf("%s does nothing", leaf.FullPath())
		}
	}
}

// A flag before the command is understood only if it is the same kind of flag for every command.
func TestFlagsMeanOneThing(t *testing.T) {
	kinds := map[string]string{}
	var visit func(node *kong.Node)
	visit = func(node *kong.Node) {
		for _, flag := range node.Flags {
			kind := fmt.Sprint(flag.IsBool(), takesMore(flag))
			if was, ok := kinds[flag.Name]; ok && was != kind {
				t.Errorf("--%s of %s is another kind of flag than elsewhere", flag.Name, node.FullPath())
			}
			kinds[flag.Name] = kind
		}
		for _, child := range node.Children {
			visit(child)
		}
	}
	visit(model(t))
	if len(kinds) < 10 {
		t.Errorf("only %d flags found", len(kinds))
	}
}

// What is not UTF-8 stays what it is, and is refused where a rule asks for text.
func TestBytesAsTheyAre(t *testing.T) {
	useFile(t)
	for _, tt := range []struct{ args, want string }{
		{"key escape \xff \xfe\xed\xa0\x80", "+xff\n+xfe+xed+xa0+x80\n"},
		{"create user uid=a name=Alice --tag \xff \xfe added=2026-01-02 --no-password", ""},
		{"keys user/tags:*", "user/tags:+xfe/~prks\nuser/tags:+xff/~prks\n"},
		{"tags list name=alice", `"\xfe"` + "\n" + `"\xff"` + "\n"},
	} {
		got := here(nil, "", strings.Fields(tt.args)...)
		if tt.want != "" && got.out != tt.want {
			t.Errorf("%q prints %q, %q; want %q", tt.args, got.out, got.err, tt.want)
		}
	}
	if got := here(nil, "", "get", "uid=\xfe"); got.code != 3 || got.err != `userdb: "uid=\xfe": not found`+"\n" {
		t.Errorf("get uid=\\xfe: %+v", got)
	}
	if got := here(nil, "", "create", "user", "uid=\xff", "--no-password"); got.code != 2 {
		t.Errorf("create uid=\\xff: %+v", got)
	}
}

func TestGlobals(t *testing.T) {
	for name, value := range map[string]string{"USERDB_STORE": "memory:", "USERDB_SCHEMA": "s.json", "USERDB_NAMESPACE": "a/b"} {
		t.Setenv(name, value)
	}
	inv, err := parse([]string{"count", "user"})
	want := globals{Store: "memory:", Schema: "s.json", Namespace: "a/b", Type: "user"}
	if err != nil || !reflect.DeepEqual(inv.globals, want) {
		t.Errorf("from the environment: %+v, %v; want %+v", inv.globals, err, want)
	}
	inv, err = parse(strings.Fields("--store x --schema y --namespace z --type t --json count user"))
	want = globals{Store: "x", Schema: "y", Namespace: "z", Type: "t", JSON: true}
	if err != nil || !reflect.DeepEqual(inv.globals, want) {
		t.Errorf("from flags: %+v, %v; want %+v", inv.globals, err, want)
	}
}
