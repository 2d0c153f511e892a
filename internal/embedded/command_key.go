package embedded

import (
	"strconv"
	"strings"
)

func countKeys(d *data, _ []string) any {
	d.registerReadAll()
	return int64(d.keys.Len())
}

func flushAll(d *data, _ []string) any {
	for _, key := range d.allKeys() {
		d.delete(key)
	}
	return okReply
}

func matchKeys(d *data, args []string) any {
	d.registerReadAll()
	var keys textsReply
	d.keys.Scan(func(key string, o *object) bool {
		if !d.expired(o) && matchGlob(args[0], key) {
			keys = append(keys, key)
		}
		return true
	})
	return keys
}

// scanAll implements SCAN. It returns all keys in one step, because the cursor of SCAN is a number,
// which cannot name the key at which to continue.
func scanAll(d *data, args []string) any {
	pattern, err := scanPattern(args[1:])
	if err != nil {
		return err
	}
	return arrayReply{"0", matchKeys(d, []string{pattern})}
}

// scanPattern returns the pattern among the options of a SCAN.
func scanPattern(options []string) (pattern string, err any) {
	pattern = "*"
	for ; len(options) >= 2; options = options[2:] {
		switch strings.ToUpper(options[0]) {
		case "MATCH":
			pattern = options[1]
		case "COUNT":
		default:
			return "", syntaxError
		}
	}
	if len(options) > 0 {
		return "", syntaxError
	}
	return pattern, nil
}

// scanKeys implements SCANKEYS PATTERN AFTER COUNT, a command of this store. It examines up to
// COUNT keys after the key AFTER. The reply begins with the last of them, or "" if no more follow,
// and the matching keys come after it. The scan begins at the first key that can match.
func scanKeys(d *data, args []string) any {
	d.registerReadAll()
	pattern, after := args[0], args[1]
	limit, err := strconv.Atoi(args[2])
	if err != nil || limit <= 0 {
		return notInteger
	}
	prefix := literalPrefix(pattern)
	found := textsReply{""}
	d.keys.Ascend(max(after, prefix), func(key string, o *object) bool {
		if key == after {
			return true
		}
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		if limit == 0 {
			found[0] = after
			return false
		}
		limit, after = limit-1, key
		if !d.expired(o) && matchGlob(pattern, key) {
			found = append(found, key)
		}
		return true
	})
	return found
}

func deleteKeys(d *data, keys []string) any {
	n := int64(0)
	for _, key := range keys {
		if d.get(key) != nil {
			d.delete(key)
			n++
		}
	}
	return n
}

func countExisting(d *data, keys []string) any {
	n := int64(0)
	for _, key := range keys {
		n += count(d.get(key) != nil)
	}
	return n
}

func typeOfKey(d *data, args []string) any {
	o := d.get(args[0])
	if o == nil {
		return statusReply("none")
	}
	switch o.value.(type) {
	case string:
		return statusReply("string")
	case *hash:
		return statusReply("hash")
	case *set:
		return statusReply("set")
	case *zset:
		return statusReply("zset")
	case *list:
		return statusReply("list")
	}
	return statusReply("stream")
}

// memoryUsage returns the approximate size of a record in a file, in bytes.
func memoryUsage(d *data, args []string) any {
	if !strings.EqualFold(args[0], "USAGE") {
		return syntaxError
	}
	if o := d.get(args[1]); o != nil {
		return int64(o.size)
	}
	return nil
}

// maxTime is the latest time at which a record can expire, in milliseconds.
const maxTime = 1 << 53

func expireIn(d *data, args []string, unit int64) any {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil || n > maxTime/unit || n < -maxTime/unit {
		return notInteger
	}
	return setExpiry(d, args[0], d.now+n*unit)
}

func expireAt(d *data, args []string) any {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil || n > maxTime {
		return notInteger
	}
	return setExpiry(d, args[0], n)
}

func setExpiry(d *data, key string, until int64) any {
	switch {
	case d.get(key) == nil:
		return int64(0)
	case until <= d.now:
		d.delete(key)
	default:
		d.setUntil(key, until)
	}
	return int64(1)
}

func persist(d *data, args []string) any {
	o := d.get(args[0])
	if o == nil || o.until == 0 {
		return int64(0)
	}
	d.setUntil(args[0], 0)
	return int64(1)
}

func timeToLive(d *data, key string, unit int64) any {
	switch o := d.get(key); {
	case o == nil:
		return int64(-2)
	case o.until == 0:
		return int64(-1)
	default:
		return (o.until - d.now + unit/2) / unit
	}
}

func renameKey(d *data, args []string) any {
	if d.get(args[0]) == nil {
		return noSuchKey
	}
	if args[0] != args[1] {
		d.rename(args[0], args[1])
	}
	return okReply
}

func copyKey(d *data, args []string) any {
	replace := len(args) == 3 && strings.EqualFold(args[2], "REPLACE")
	switch {
	case len(args) == 3 && !replace:
		return syntaxError
	case args[0] == args[1]:
		return errorReply("ERR source and destination objects are the same")
	case d.get(args[0]) == nil || !replace && d.get(args[1]) != nil:
		return int64(0)
	}
	d.copyTo(args[0], args[1])
	return int64(1)
}
