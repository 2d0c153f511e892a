// Package redisx is what both engines need of Redis: scripts, retries, batches of many callers, the decoding of replies and
// errors, and the questions that are asked of a server before it is trusted.
package redisx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// refusals are the prefixes of answers by which a server says that it cannot serve now, or not us.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "OOM", "MISCONF",
	"NOREPLICAS", "NOAUTH", "NOPERM", "WRONGPASS", "BUSY", "CROSSSLOT", "UNKILLABLE", "ERR max number of clients",
	"ERR Protocol error: unauthenticated", // NOAUTH for a command of many words
	"ERR The user executing the script",   // NOPERM for a command in a script
	"ERR ACL failure in script",           // the same, of later versions
	"EXECABORT",                           // of what was refused among several commands; none was carried out
}

// passing are those of them that another attempt may not meet.
var passing = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS"}

// Fail makes one of the store's errors of what a client returned. The cause stays in the chain.
func Fail(err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable):
		return err
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("waiting for the store: %w", err)
	case IsAnswer(err) && !Refused(err):
		return fmt.Errorf("the store answered: %w", err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// IsAnswer reports whether the server itself answered, so that what it says is known to be so.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

func hasPrefix(err error, prefixes []string) bool {
	if err == nil {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	for _, p := range prefixes {
		if strings.HasPrefix(answer.Error(), p) {
			return true
		}
	}
	return false
}

// Refused reports whether err is the answer of a server that cannot serve now, or not us.
func Refused(err error) bool { return hasPrefix(err, refusals) || leftNode(err) }

// Moved reports whether err is the answer of a node that does not serve the slot, or not alone.
func Moved(err error) bool {
	return hasPrefix(err, []string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"}) || leftNode(err)
}

// Raised reports whether err is that of a command in the middle of a script, which may have written before.
func Raised(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Error()
	return strings.Contains(text, " @user_script") || strings.Contains(text, "Error running script")
}

// leftNode reports whether a script met a key that its node does not serve any more, as only the second of
// two commands on a key can in a slot that is being migrated.
func leftNode(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.Contains(answer.Error(), "cript attempted to access a non local key")
}

// WrongType reports whether err is the answer for a record of another Redis type.
func WrongType(err error) bool { return hasPrefix(err, []string{"WRONGTYPE"}) }

// Passing reports whether another attempt may succeed.
func Passing(err error) bool {
	if IsAnswer(err) {
		return hasPrefix(err, passing) || leftNode(err)
	}
	return !errors.Is(err, store.ErrReply) && !errors.Is(err, context.Canceled) && !errors.Is(err, redis.ErrClosed)
}

// Sent reports whether the server may have run the command: false only where it certainly did not.
func Sent(err error) bool {
	var dial *net.OpError
	switch {
	case Raised(err):
		return true
	case IsAnswer(err), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return false
	case errors.As(err, &dial):
		return dial.Op != "dial"
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// FoundAt makes an answer of the reply to HGETALL at a PRK, or of the error of reading it (I3).
func FoundAt(key recordkey.Key, fields map[string]string, err error) store.Found {
	switch {
	case WrongType(err):
		return store.Found{Err: &store.CorruptError{Key: key.String(), Reason: "not a hash (WRONGTYPE)"}}
	case err != nil:
		return store.Found{Err: Fail(err)}
	}
	return store.FoundAt(key, fields)
}
