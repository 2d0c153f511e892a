package embedded

import (
	"math"
	"slices"
	"strconv"
)

func setFields(d *data, args []string) any {
	key, pairs := args[0], args[1:]
	if len(pairs)%2 != 0 {
		return errorReply("ERR wrong number of arguments for 'hset' command")
	}
	if _, err := valueOf[*hash](d, key); err != nil {
		return err
	}
	n := int64(0)
	for pair := range slices.Chunk(pairs, 2) {
		n += count(d.setField(key, pair[0], pair[1]))
	}
	return n
}

func setNewField(d *data, args []string) any {
	h, err := valueOf[*hash](d, args[0])
	if err != nil {
		return err
	}
	if h != nil {
		if _, found := h.get(args[1]); found {
			return int64(0)
		}
	}
	d.setField(args[0], args[1], args[2])
	return int64(1)
}

func incrementField(d *data, args []string) any {
	by, failed := strconv.ParseInt(args[2], 10, 64)
	if failed != nil {
		return notInteger
	}
	h, err := valueOf[*hash](d, args[0])
	if err != nil {
		return err
	}
	text, found := "", false
	if h != nil {
		text, found = h.get(args[1])
	}
	n, ok := parseStored(text)
	if found && !ok {
		return errorReply("ERR hash value is not an integer")
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return overflows
	}
	d.setField(args[0], args[1], strconv.FormatInt(n+by, 10))
	return n + by
}

func getField(d *data, args []string) any {
	values := getFields(d, args)
	if all, ok := values.(arrayReply); ok {
		return all[0]
	}
	return values
}

func getFields(d *data, args []string) any {
	h, err := valueOf[*hash](d, args[0])
	if err != nil {
		return err
	}
	values := make(arrayReply, len(args)-1)
	for i, field := range args[1:] {
		if h == nil {
			continue
		}
		if value, found := h.get(field); found {
			values[i] = value
		}
	}
	return values
}

func hasField(d *data, args []string) any {
	value := getField(d, args)
	if value == wrongType {
		return value
	}
	return count(value != nil)
}

func getHash(d *data, args []string) any {
	h, err := valueOf[*hash](d, args[0])
	if err != nil {
		return err
	}
	all := mapReply{}
	if h != nil {
		all = make(mapReply, 0, 2*h.len())
		h.ascend("", func(field, value string) bool {
			all = append(all, field, value)
			return true
		})
	}
	return all
}

// scanFields implements HSCAN. Like the other scans of a record, it returns everything in one step.
func scanFields(d *data, args []string) any {
	all := getHash(d, args)
	if all == wrongType {
		return all
	}
	return arrayReply{"0", textsReply(all.(mapReply))}
}

func fieldNames(d *data, args []string) any {
	h, err := valueOf[*hash](d, args[0])
	if h == nil {
		return errorOrEmpty[textsReply](err)
	}
	return textsReply(h.keys())
}

func countFields(d *data, args []string) any {
	h, err := valueOf[*hash](d, args[0])
	if h == nil {
		return errorOrEmpty[int64](err)
	}
	return int64(h.len())
}

func deleteFields(d *data, args []string) any {
	n := int64(0)
	for _, field := range args[1:] {
		h, err := valueOf[*hash](d, args[0])
		if h == nil {
			if err == nil {
				err = n
			}
			return err
		}
		if _, found := h.get(field); found {
			d.deleteField(args[0], field)
			n++
		}
	}
	return n
}
