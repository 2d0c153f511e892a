//go:build unix

package console

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// startFolderProcess starts a process that makes a folder with a file, and returns the path of the
// folder and a function that kills the process.
func startFolderProcess(t *testing.T) (folder string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAbandonedFolders$")
	cmd.Env = append(os.Environ(), "USERDB_TEST_FOLDER=1")
	out, err := cmd.StdoutPipe()
	must(t, err)
	_, err = cmd.StdinPipe() // the process ends when this one does
	must(t, err)
	must(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill() // it may be dead
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the process makes no folder")
	}
	return lines.Text(), kill
}

// TestAbandonedFolders checks that a new console removes the folders of processes that were killed,
// and nothing else.
func TestAbandonedFolders(t *testing.T) {
	if os.Getenv("USERDB_TEST_FOLDER") != "" {
		r := &runner{}
		file, err := r.create("job", exportFile)
		must(t, err)
		fmt.Println(filepath.Dir(filepath.Dir(file.Name())))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	tmp, outside := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	killed, kill := startFolderProcess(t)
	running, _ := startFolderProcess(t)
	kill()
	in := func(name string) string { return filepath.Join(tmp, folderPrefix+name) }
	put := func(path string) {
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	put(filepath.Join(outside, lockName))
	put(filepath.Join(outside, "file"))
	must(t, os.Symlink(outside, filepath.Join(killed, "link")))
	must(t, os.Symlink(outside, in("link")))
	put(in("linked/file"))
	must(t, os.Symlink("../../"+filepath.Base(outside)+"/"+lockName, in("linked/"+lockName)))
	put(in("file"))
	put(in("unknown/file"))
	must(t, os.Mkdir(in("empty"), 0o700)) // its process died before it locked the file
	put(filepath.Join(tmp, "other", lockName))
	want := []string{filepath.Join(tmp, "other"), in("file"), in("link"), in("linked"), in("unknown"), running}
	put(in("theirs/" + lockName))
	if err := os.Chown(in("theirs"), 54321, -1); err == nil { // only root can
		want = append(want, in("theirs"))
	}

	open(t, "memory:")
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	must(t, err)
	if slices.Sort(want); !slices.Equal(left, want) {
		t.Errorf("got %q, want %q", left, want)
	}
	for _, path := range []string{filepath.Join(running, "job", exportFile), filepath.Join(outside, "file"), filepath.Join(outside, lockName)} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestTidiedFolder checks that a runner makes another folder after its own was removed, and does
// not use one that somebody else has put in its place.
func TestTidiedFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d := open(t, "memory:")
	d.makeFile(10)
	before := d.console.jobs.folder
	must(t, os.RemoveAll(before))
	must(t, os.MkdirAll(before, 0o700))
	must(t, os.WriteFile(filepath.Join(before, lockName), nil, 0o600))
	d.makeFile(10)
	if after := d.console.jobs.folder; after == before {
		t.Errorf("the runner writes to %s, which is not its own", after)
	}
}
