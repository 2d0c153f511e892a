//go:build !linux

package embedded

import "errors"

func mountTmpfs(string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
