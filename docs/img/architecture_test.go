package main

import (
	"encoding/json"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/coffeenode/userdb/"

// undrawn lists folders that are not part of the product.
var undrawn = []string{"deploy", "docs", "internal/ci", "internal/redistest", "test", "userdb_test"}

// TestLayers checks that every package of the product is in a layer, drawn or not, and that none
// imports a package of a higher layer.
func TestLayers(t *testing.T) {
	layerOf := map[string]int{} // by folder; -1 if it is not drawn
	for _, folder := range undrawn {
		layerOf[folder] = -1
	}
	for i, l := range layers {
		for _, room := range l.rooms {
			layerOf[path.Join(l.dir, room)] = i
		}
		for _, folder := range l.also {
			layerOf[folder] = i
		}
	}
	unused := map[string]bool{}
	for folder := range layerOf {
		unused[folder] = true
	}
	find := func(folder string) (int, bool) {
		for ; folder != "."; folder = path.Dir(folder) {
			if i, is := layerOf[folder]; is {
				delete(unused, folder)
				return i, true
			}
		}
		return 0, false
	}
	for folder, imports := range importGraph(t) {
		own, is := find(folder)
		if !is {
			t.Errorf("%s/ is in no layer of the picture", folder)
		}
		for _, other := range imports {
			if i, is := find(other); is && own >= 0 && i < own {
				t.Errorf("%s/ imports %s/, which is in a higher layer", folder, other)
			}
		}
	}
	for folder := range unused {
		t.Errorf("there is no package in %s/", folder)
	}
}

// importGraph returns the packages of this module that each package imports, without tests, by
// folder.
func importGraph(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "../../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	graph := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ours := slices.DeleteFunc(p.Imports, func(i string) bool { return !strings.HasPrefix(i, module) })
		for i := range ours {
			ours[i] = strings.TrimPrefix(ours[i], module)
		}
		graph[strings.TrimPrefix(p.ImportPath, module)] = ours
	}
	return graph
}
