// Package redisx holds what both engines need to talk to Redis: scripts, retries, batches of many
// callers, the decoding of replies and errors, and the checks of a server before it is trusted.
package redisx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// A meaning is a set of conclusions to draw from a server's error reply.
type meaning uint8

const (
	refused    meaning = 1 << iota // the server does not serve this client, or cannot serve now
	retryable                      // another attempt may succeed
	moved                          // the node does not serve the slot, or serves only part of it
	noScript                       // the server does not have the script
	unsuitable                     // the URL names the wrong kind of server or database
)

// errorReplies lists the prefixes of error replies that have a meaning.
var errorReplies = []struct {
	meaning  meaning
	prefixes []string
}{
	{refused | retryable, []string{"LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOREPLICAS"}},
	{refused | retryable | moved, []string{"TRYAGAIN", "CLUSTERDOWN"}},
	{refused | moved, []string{"MOVED", "ASK"}},
	{refused, []string{
		"OOM", "MISCONF", "NOAUTH", "NOPERM", "WRONGPASS", "CROSSSLOT", "UNKILLABLE", "ERR max number of clients",
		"DENIED",                              // protected mode
		"ERR max daily request",               // the quota of a managed server
		"ERR invalid password",                // WRONGPASS, in earlier versions
		"ERR Client sent AUTH",                // a server without a password, in earlier versions
		"ERR AUTH <password> called",          // the same, later
		"ERR Protocol error: unauthenticated", // NOAUTH, for a command with many arguments
		"ERR The user executing the script",   // NOPERM, for a command in a script
		"ERR ACL failure in script",           // the same, in later versions
		// One of the commands of a transaction was refused, so none was carried out.
		"EXECABORT",
	}},
	{noScript, []string{"NOSCRIPT"}},
	{unsuitable, []string{"ERR DB index is out of range", "ERR This instance has cluster support disabled", "ERR unknown command"}},
}

// nonLocal is part of the error of a script that used a key that its node no longer serves. In a
// slot that is being migrated, this can happen to the second of two commands on the same key. The
// first letter is missing because it is a capital only in some versions.
const nonLocal = "cript attempted to access a non local key"

// wrapped is part of a script's error on servers that put their own text before the error of the
// failed command. The prefix of such an error says nothing.
const wrapped = "Error running script (call to "

// replyMeans reports whether err is a reply that means m.
func replyMeans(err error, m meaning) bool {
	text := replyText(err)
	for _, a := range errorReplies {
		for _, prefix := range a.prefixes {
			if a.meaning&m != 0 && strings.HasPrefix(text, prefix) {
				return true
			}
		}
	}
	return m&(refused|retryable|moved) != 0 && strings.Contains(text, nonLocal)
}

// replyText returns the text of an error that the server itself returned, or "" for other errors.
func replyText(err error) string {
	if a, ok := errors.AsType[redis.Error](err); ok {
		return a.Error()
	}
	return ""
}

// IsServerReply reports whether the server itself returned err, and not the client or the network.
func IsServerReply(err error) bool { return replyText(err) != "" }

// Moved reports whether err comes from a node that does not serve the slot, or serves only part of
// it.
func Moved(err error) bool { return replyMeans(err, moved) }

// TryAgain reports whether err comes from a node that cannot serve several keys of a slot at the
// moment, because the slot is being migrated.
func TryAgain(err error) bool { return strings.HasPrefix(replyText(err), "TRYAGAIN") }

// WrongType reports whether err says that the record has another Redis type.
func WrongType(err error) bool { return store.IsWrongType(err) }

// NoScript reports whether err says that the server does not have the script.
func NoScript(err error) bool { return replyMeans(err, noScript) }

// Retryable reports whether another attempt may succeed.
func Retryable(err error) bool {
	if IsServerReply(err) {
		return replyMeans(err, retryable)
	}
	return !errors.Is(err, store.ErrReply) && !errors.Is(err, store.ErrUnsuitable) && !errors.Is(err, context.Canceled) && !errors.Is(err, redis.ErrClosed)
}

// Sent reports whether the server may have run the command. It returns false only if the server
// certainly did not.
func Sent(err error) bool {
	text := replyText(err)
	switch {
	// An error inside a script: earlier commands of the script may have written.
	case text != "":
		return strings.Contains(text, " @user_script") || strings.Contains(text, "Error running script")
	case errors.Is(err, ErrAbandoned):
		return true
	case errors.Is(err, store.ErrUnsuitable), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op != "dial"
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// Fail classifies an error of the client. It wraps the error in ErrUnavailable or ErrUnsuitable if
// one of these applies.
func Fail(err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnsuitable):
		return err
	case replyMeans(err, unsuitable):
		return fmt.Errorf("%w: %w", store.ErrUnsuitable, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("waiting for the store: %w", err)
	case strings.Contains(replyText(err), wrapped):
		return fmt.Errorf("the server hides the errors of scripts, as KeyDB and Redis before version 7 do, which userdb does not support: %w", err)
	case IsServerReply(err) && !replyMeans(err, refused):
		return fmt.Errorf("the store answered: %w", err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}
