//go:build linux

package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
)

// A secret is the secret of a session, a token or an invitation that some client got.
type secret struct {
	Kind   string // verb that returned it
	Epoch  int
	UID    int
	Secret string
	ID     string // ID of a session
}

// A pool holds the secrets that all clients got, so that a client can use those of another. It is a
// file. All clients append to it, and each reads the lines of the others.
type pool struct {
	file *os.File
	in   *bufio.Reader
	part string // beginning of an incomplete line
	all  []secret
}

func openPool(path string) (*pool, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	in, err := os.Open(path)
	return &pool{file: file, in: bufio.NewReader(in)}, err
}

func (p *pool) add(s secret) error {
	text, err := json.Marshal(s)
	if err == nil {
		_, err = p.file.Write(append(text, '\n')) // not buffered: other clients read it
	}
	return err
}

// pick returns a random secret of a kind and an epoch, or false if there is none.
func (p *pool) pick(rnd *rand.Rand, kind string, epoch int) (found secret, ok bool, err error) {
	for {
		text, err := p.in.ReadString('\n')
		p.part += text
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return secret{}, false, err
		}
		var s secret
		if err := json.Unmarshal([]byte(p.part), &s); err != nil {
			return secret{}, false, err
		}
		p.all, p.part = append(p.all, s), ""
	}
	var matching []secret
	for _, s := range p.all {
		if s.Kind == kind && s.Epoch == epoch {
			matching = append(matching, s)
		}
	}
	if len(matching) == 0 {
		return secret{}, false, nil
	}
	return matching[rnd.IntN(len(matching))], true, nil
}
