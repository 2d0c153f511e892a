package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coffeenode/userdb/internal/ownfile"
)

// MaxRecords is how many records a file holds.
const MaxRecords = 50_000

// A Store is an open embedded store, safe for concurrent use. Close it: until then no other process can use the file.
type Store struct {
	path   string // real; "": memory only
	limit  int    // of records
	disk   disk
	engine *engine
	client *redis.Client
	lock   *os.File // nil: memory only, or remote

	remote bool // the client speaks to the process that has the file, and that is all

	gate sync.RWMutex // shared by commands that may change records, held alone by a snapshot

	mu      sync.Mutex
	running int           // commands between enter and leave
	epoch   uint64        // grows whenever changes are undone
	failed  error         // of the last write; the next command undoes what it lost
	undone  error         // why changes were undone last
	saved   uint64        // version in the file
	kept    int           // records in the file
	writing chan struct{} // closed when the running write ends; nil: none runs
	closed  bool          // takes no more commands
	sealed  bool          // starts no more writes
	close   func() error
}

// Open opens the store in the file at path, or one that is gone at Close where path is "". A missing file is an empty
// store; it and its directory are made, for this user alone. Where another process has the file and serves it (see Serve), the
// store is a client of that one. Where it does not, Open waits until ctx ends, then fails with ErrLocked. A file that it cannot read as written fails with ErrDamaged, one that others may
// write with ErrExposed, and stays as it is.
func Open(ctx context.Context, path string) (*Store, error) {
	s := &Store{disk: osDisk{}, limit: MaxRecords}
	s.close = sync.OnceValue(s.shut)
	if path != "" {
		var err error
		if s.path, err = resolve(path); err != nil {
			return nil, fmt.Errorf("opening the embedded store: %w", err)
		}
		if s.lock, s.client, err = lockFile(ctx, s.path); err != nil {
			return nil, err
		}
		if s.client != nil {
			s.remote, s.close = true, sync.OnceValue(s.client.Close)
			return s, nil
		}
	}
	if err := s.start(ctx); err != nil {
		s.lock.Close() // nil is allowed, and an error no news
		return nil, err
	}
	return s, nil
}

// Exists reports whether there is a store in the file at path, or one that a process has begun to make. It touches nothing.
// Of what cannot be told, Open says why.
func Exists(path string) bool {
	_, err := os.Stat(path)
	_, unlocked := os.Lstat(path + ".lock")
	return !errors.Is(err, fs.ErrNotExist) || !errors.Is(unlocked, fs.ErrNotExist)
}

func (s *Store) start(ctx context.Context) (err error) {
	if s.engine, err = newEngine(ctx); err != nil {
		return err
	}
	if err := s.load(); err != nil {
		s.engine.close()
		return err
	}
	s.client = s.newClient()
	return nil
}

// load makes the records those of the file.
func (s *Store) load() error {
	if s.path == "" {
		return nil
	}
	records, err := readFile(s.path)
	if err == nil && len(records) == 0 && s.kept > 0 { // its folder was moved, or the disk is away: all is there when it is back
		err = fmt.Errorf("%w: %s is gone, which had %d records", ErrUnsaved, s.path, s.kept)
	}
	if err != nil {
		return err
	}
	s.kept = len(records)
	s.saved, err = s.engine.restore(records)
	return err
}

// newClient makes the client, without what is for networks: every command that begins also ends, since a store can only
// undo changes while none runs.
func (s *Store) newClient() *redis.Client {
	client := redis.NewClient(clientOptions(s.engine.dial))
	if s.path != "" {
		client.AddHook(hook{s})
	}
	return client
}

func clientOptions(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *redis.Options {
	return &redis.Options{
		Addr:            "embedded",
		Dialer:          dial,
		MaxRetries:      -1,
		ReadTimeout:     -2,
		WriteTimeout:    -2,
		ConnMaxIdleTime: -1,
		PoolSize:        1000, // connections cost nothing here, and waiting for one could take forever
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Client returns the one client of the store. The store closes it.
func (s *Store) Client() *redis.Client { return s.client }

// Close writes what a bulk left unwritten, ends the client and lets go of the file. It fails when the last write did.
// Further calls return the same.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	err := cmp.Or(s.seal(), s.client.Close())
	s.engine.close()
	s.lock.Close() // nil is allowed; it was never written
	return err
}

// seal writes the last changes. No write runs after it: the file may be another process's then.
func (s *Store) seal() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.wait(context.Background(), s.engine.version.Load())
	s.mu.Lock()
	s.sealed = true
	writing := s.writing
	s.mu.Unlock()
	if writing != nil {
		<-writing
	}
	return err
}

// DefaultPath is where the records of this user are where no path is given: userdb/userdb.jsonl under $XDG_DATA_HOME
// or, where that is not set to an absolute path, under the platform's directory for user data. It touches nothing. It
// fails where the environment names no home directory.
func DefaultPath() (string, error) {
	dir, err := dataDir(runtime.GOOS)
	if err != nil {
		return "", fmt.Errorf("finding the user's data directory: %w; set XDG_DATA_HOME, or name a store", err)
	}
	return filepath.Join(dir, "userdb", "userdb.jsonl"), nil
}

func dataDir(goos string) (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if goos == "windows" {
		if dir := os.Getenv("LOCALAPPDATA"); dir != "" {
			return dir, nil
		}
		return "", errors.New("LOCALAPPDATA is not set")
	}
	home, err := os.UserHomeDir()
	if goos == "darwin" {
		return filepath.Join(home, "Library", "Application Support"), err
	}
	return filepath.Join(home, ".local", "share"), err
}

// resolve returns the real path of the file at path, so that a link is not replaced by a file and two names of one file
// share one lock. The file need not exist; its directory is made.
func resolve(path string) (string, error) {
	const maxLinks = 40
	if os.IsPathSeparator(path[len(path)-1]) {
		return "", fmt.Errorf("%s is a directory: the store is a file", path)
	}
	for range maxLinks {
		dir, err := makeDir(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := readLink(path)
		if err != nil || target == "" {
			return path, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many links", path)
}

func makeDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// readLink returns where the link at path points, or "" for what is a file or nothing yet.
func readLink(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := ownfile.Readlink(path)
		return target, exposed(err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no regular file", path)
	}
	return "", nil
}
