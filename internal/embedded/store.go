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
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// A Store is an open embedded store. It is safe for concurrent use. Until it is closed, another
// process can open the file only as a client (see [Store.Serve]).
type Store struct {
	path   string // with links resolved; "" means memory only
	disk   disk
	engine *engine
	client *redis.Client
	lock   *os.File // nil if memory only or remote

	// remote means that the store is only a client of the process that has the file.
	remote bool

	lastTag atomic.Uint64 // the number that names the last call (see tag)
	closed  atomic.Bool   // no more commands are accepted
	closing chan struct{} // closed after closed is set
	close   func() error

	// Only the goroutine that writes batches uses these.
	log        *logFile    // nil until the first write, if the file is missing or of JSON lines
	legacy     os.FileInfo // the file of JSON lines that the next write replaces, or nil
	kept       keptFile    // the file of JSON lines that a new file replaces, or has replaced
	renamed    bool        // the file was replaced, and its directory is not synced yet
	compaction compaction
}

// Open opens the store in the file at path. If path is "", the store is kept in memory only and is
// gone after Close. A missing file is an empty store; Open creates its directory, for this user
// only. If another process has the file and serves it (see Serve), the store is a client of that
// process. If the other process does not serve it, Open waits until ctx ends and then fails with
// ErrLocked. It fails with ErrDamaged if the file does not have the documented format, and with
// ErrExposed if others may read or write it; in both cases it does not change the file. It fails
// with ErrFull if the disk has no room for the lock file.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := openOn(ctx, osDisk{}, path)
	return s, MarkFull(err)
}

func openOn(ctx context.Context, d disk, path string) (*Store, error) {
	s := &Store{disk: d, closing: make(chan struct{})}
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
		s.lock.Close() // a nil lock is fine, and this error does not matter
		return nil, err
	}
	return s, nil
}

// Exists reports whether there is a file at path, or whether a process has begun to create a store
// there. It does not read the file, and creates and changes nothing. If it cannot tell, it returns
// true, and Open returns the reason.
func Exists(path string) bool {
	_, err := os.Stat(path)
	_, lockErr := os.Lstat(path + ".lock")
	return !errors.Is(err, fs.ErrNotExist) || !errors.Is(lockErr, fs.ErrNotExist)
}

func (s *Store) start(ctx context.Context) error {
	s.engine = newEngine(ctx)
	if err := s.load(ctx); err != nil {
		s.engine.close()
		if s.log != nil {
			_ = s.log.file.Close()
		}
		return err
	}
	s.client = s.newClient()
	return nil
}

// load reads the records of the file, and rewrites it if most of it is no longer needed.
func (s *Store) load(ctx context.Context) error {
	e, d := s.engine, s.engine.data
	if s.path == "" {
		d.unsaved = true
		return nil
	}
	if err := s.readFile(d); err != nil {
		return err
	}
	// Every change from here on is written to the file, or undone.
	e.write, e.durable = s.commit, d.freeze()
	if s.log != nil {
		if err := s.log.settle(); err != nil {
			return fmt.Errorf("reading the embedded store: %w", err)
		}
	}
	for _, suffix := range []string{".tmp", legacySuffix + ".tmp"} { // left by a killed process
		_ = s.disk.remove(s.path + suffix)
	}
	if s.log != nil && s.log.end > int64(2*d.size+startSlack) {
		// If it cannot be rewritten, for example because the disk is full, the file stays.
		_ = s.compact(ctx)
	}
	return nil
}

// readFile reads the file at the store's path, in either format, if there is one.
func (s *Store) readFile(d *data) error {
	file, err := s.disk.open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the embedded store: %w", err)
	}
	if !isLog(file) {
		defer file.Close()
		if s.legacy, err = file.Stat(); err != nil {
			return err
		}
		if s.kept, err = sumFile(file, s.legacy.Size()); err != nil {
			return err
		}
		return readLegacy(file, s.path, d)
	}
	if s.log, err = openLog(file, d.apply); err != nil {
		_ = file.Close()
		return withPath(err, s.path)
	}
	s.kept = s.log.kept
	s.renamed = true // perhaps by a process that was killed
	return nil
}

// newClient returns the client. It turns off settings that are meant for networks, such as
// timeouts.
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
		PoolSize:        1000, // connections cost nothing, and waiting for one could last forever
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Client returns the client of the store. Close closes it.
func (s *Store) Client() *redis.Client { return s.client }

// Close writes the changes that are not in the file yet, closes the client and releases the file.
// It returns the error of the first step that failed. Further calls return the same error.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.closed.Store(true)
	close(s.closing)
	s.engine.close()
	err := s.engine.finish()
	if s.path != "" {
		s.compaction.cancel(s)
		if s.log != nil {
			err = cmp.Or(err, s.log.close())
		}
	}
	err = cmp.Or(err, s.client.Close())
	s.lock.Close() // a nil lock is fine, and the contents of the lock file need not last
	return err
}

// DefaultPath returns the path of the store to use if none is given: userdb/userdb.jsonl under
// $XDG_DATA_HOME, or under the platform's directory for user data if XDG_DATA_HOME is not an
// absolute path. It creates nothing. It fails if the environment does not name a home directory.
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
	if err == nil && !filepath.IsAbs(home) { // the store would depend on the working directory
		return "", fmt.Errorf("$HOME is %q, want an absolute path", home)
	}
	if goos == "darwin" {
		return filepath.Join(home, "Library", "Application Support"), err
	}
	return filepath.Join(home, ".local", "share"), err
}

// resolve returns the path of the file at path with links resolved, so that a link is not replaced
// by a file, and two names of one file share a lock. It creates the file's directory; the file need
// not exist.
func resolve(path string) (string, error) {
	const maxLinks = 40
	if os.IsPathSeparator(path[len(path)-1]) {
		return "", fmt.Errorf("%s is a directory, want a file", path)
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
	if err := makeDirs(dir); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// makeDirs does what [os.MkdirAll] does, and makes the new directories durable.
func makeDirs(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	parent := filepath.Dir(dir)
	if !errors.Is(err, fs.ErrNotExist) || parent == dir {
		return err
	}
	if err := makeDirs(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return osDisk{}.syncDir(parent)
}

// readLink returns the target of the link at path, or "" if path is a file or does not exist.
func readLink(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := privatefile.Readlink(path)
		return target, exposedError(err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	return "", nil
}
