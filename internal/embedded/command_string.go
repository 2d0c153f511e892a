package embedded

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

func getString(d *data, args []string) any {
	o := d.get(args[0])
	if o == nil {
		return nil
	}
	if text, ok := o.value.(string); ok {
		return text
	}
	return wrongType
}

func getStrings(d *data, keys []string) any {
	values := make(arrayReply, len(keys))
	for i := range keys {
		if values[i] = getString(d, keys[i:]); values[i] == wrongType {
			values[i] = nil
		}
	}
	return values
}

func stringLength(d *data, args []string) any {
	text, err := valueOf[string](d, args[0])
	if err != nil {
		return err
	}
	return int64(len(text))
}

// parseStored parses a number to be incremented, which must be in its canonical decimal form.
func parseStored(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

func getRange(d *data, args []string) any {
	first, err1 := strconv.Atoi(args[1])
	last, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return notInteger
	}
	text, err := valueOf[string](d, args[0])
	if err != nil {
		return err
	}
	n := len(text)
	if n == 0 || first < 0 && last < 0 && first > last {
		return ""
	}
	if first < 0 {
		first = max(0, first+n)
	}
	if last < 0 {
		last = max(0, last+n)
	}
	if last = min(last, n-1); first > last {
		return ""
	}
	return text[first : last+1]
}

const overflows = errorReply("ERR increment or decrement would overflow")

func increment(d *data, args []string) any {
	text, err := valueOf[string](d, args[0])
	if err != nil {
		return err
	}
	n, until := int64(0), int64(0)
	if o := d.get(args[0]); o != nil {
		var ok bool
		if n, ok = parseStored(text); !ok {
			return notInteger
		}
		until = o.until
	}
	if n == math.MaxInt64 {
		return overflows
	}
	d.setString(args[0], strconv.FormatInt(n+1, 10))
	if until != 0 {
		d.setUntil(args[0], until)
	}
	return n + 1
}

func setStrings(d *data, args []string) any {
	if len(args)%2 != 0 {
		return errorReply("ERR wrong number of arguments for 'mset' command")
	}
	for pair := range slices.Chunk(args, 2) {
		d.setString(pair[0], pair[1])
	}
	return okReply
}

// setString implements SET. It returns nil if a condition is not met.
func setString(d *data, args []string) any {
	o := d.get(args[0])
	until, onlyNew, onlyOld := int64(0), false, false
	for options := args[2:]; len(options) > 0; options = options[1:] {
		switch option := strings.ToUpper(options[0]); option {
		case "NX":
			onlyNew = true
		case "XX":
			onlyOld = true
		case "KEEPTTL":
			if o != nil {
				until = o.until
			}
		case "EX", "PX":
			if len(options) == 1 {
				return syntaxError
			}
			options = options[1:]
			n, err := strconv.ParseInt(options[0], 10, 64)
			unit := int64(1)
			if option == "EX" {
				unit = 1000
			}
			switch {
			case err != nil:
				return notInteger
			case n <= 0 || n > maxTime/unit:
				return errorReply("ERR invalid expire time in 'set' command")
			}
			until = d.now + n*unit
		default:
			return syntaxError
		}
	}
	if onlyNew && onlyOld {
		return syntaxError
	}
	if onlyNew && o != nil || onlyOld && o == nil {
		return nil
	}
	d.setString(args[0], args[1])
	if until != 0 {
		d.setUntil(args[0], until)
	}
	return okReply
}
