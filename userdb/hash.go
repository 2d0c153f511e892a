package userdb

import (
	"context"

	"github.com/coffeenode/userdb/hints"
)

// Hash is a tertiary record that holds names with values.
type Hash struct{ r tertiary }

// Hash names the tertiary hash of the entry that a hint points at.
func (t *Type) Hash(h hints.Hint, name string) Hash { return Hash{tertiary{t, h, name, "hash"}} }

// Put sets a name's value.
func (h Hash) Put(ctx context.Context, name, value string) error {
	_, err := h.r.write(ctx, "HSET", name, value)
	return err
}

// Get returns a name's value, and whether it is there.
func (h Hash) Get(ctx context.Context, name string) (string, bool, error) {
	reply, err := h.r.read(ctx, "HGET", name)
	return reply.Text, err == nil && !reply.Nil, err
}

// All returns all names with their values.
func (h Hash) All(ctx context.Context) (map[string]string, error) {
	reply, err := h.r.read(ctx, "HGETALL")
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(reply.Items)/2)
	for i := 0; i+1 < len(reply.Items); i += 2 {
		all[reply.Items[i]] = reply.Items[i+1]
	}
	return all, nil
}

// Remove takes names out and says how many were there.
func (h Hash) Remove(ctx context.Context, names ...string) (int64, error) {
	if len(names) == 0 {
		return 0, nil
	}
	reply, err := h.r.write(ctx, "HDEL", names...)
	return reply.Int, err
}

// Len says how many names there are.
func (h Hash) Len(ctx context.Context) (int64, error) {
	reply, err := h.r.read(ctx, "HLEN")
	return reply.Int, err
}

// String is a tertiary record that holds one text.
type String struct{ r tertiary }

// String names the tertiary string of the entry that a hint points at.
func (t *Type) String(h hints.Hint, name string) String {
	return String{tertiary{t, h, name, "string"}}
}

// Put sets the text.
func (s String) Put(ctx context.Context, text string) error {
	_, err := s.r.write(ctx, "SET", text)
	return err
}

// Get returns the text, and whether there is one.
func (s String) Get(ctx context.Context) (string, bool, error) {
	reply, err := s.r.read(ctx, "GET")
	return reply.Text, err == nil && !reply.Nil, err
}

// Remove deletes the record and says whether there was one.
func (s String) Remove(ctx context.Context) (bool, error) {
	reply, err := s.r.write(ctx, "UNLINK")
	return reply.Int > 0, err
}
