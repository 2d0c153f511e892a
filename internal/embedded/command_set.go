package embedded

import (
	"strconv"
)

func addMembers(d *data, args []string) any {
	s, err := valueOf[*set](d, args[0])
	if err != nil {
		return err
	}
	n := int64(0)
	for _, member := range args[1:] {
		if s != nil {
			if _, found := s.get(member); found {
				continue
			}
		}
		d.addMember(args[0], member)
		s, _ = valueOf[*set](d, args[0])
		n++
	}
	return n
}

func removeMembers(d *data, args []string) any {
	n := int64(0)
	for _, member := range args[1:] {
		s, err := valueOf[*set](d, args[0])
		if s == nil {
			if err != nil {
				return err
			}
			return n
		}
		if _, found := s.get(member); found {
			d.deleteMember(args[0], member)
			n++
		}
	}
	return n
}

func countMembers(d *data, args []string) any {
	s, err := valueOf[*set](d, args[0])
	if s == nil {
		return errorOrEmpty[int64](err)
	}
	return int64(s.len())
}

func areMembers(d *data, args []string) any {
	s, err := valueOf[*set](d, args[0])
	if err != nil {
		return err
	}
	are := make(arrayReply, len(args)-1)
	for i, member := range args[1:] {
		found := false
		if s != nil {
			_, found = s.get(member)
		}
		are[i] = count(found)
	}
	return are
}

func isMember(d *data, args []string) any {
	are := areMembers(d, args)
	if all, ok := are.(arrayReply); ok {
		return all[0]
	}
	return are
}

func allMembers(d *data, args []string) any {
	s, err := valueOf[*set](d, args[0])
	if s == nil {
		return errorOrEmpty[setReply](err)
	}
	return setReply(s.keys())
}

func scanMembersAll(d *data, args []string) any {
	s, err := valueOf[*set](d, args[0])
	if err != nil {
		return err
	}
	if s == nil {
		s = new(set)
	}
	return arrayReply{"0", textsReply(s.keys())}
}

// scanMembers implements SCANMEMBERS KEY AFTER COUNT, a command of this store. The reply begins
// with the last member returned, or "" if no more follow, and then holds up to COUNT members after
// the member AFTER.
func scanMembers(d *data, args []string) any {
	s, err := valueOf[*set](d, args[0])
	limit, failed := strconv.Atoi(args[2])
	switch {
	case err != nil:
		return err
	case failed != nil || limit <= 0:
		return notInteger
	}
	found := textsReply{""}
	if s == nil {
		return found
	}
	s.ascend(args[1], func(member string, _ struct{}) bool {
		switch {
		case member == args[1] && member != "":
			return true
		case len(found) > limit:
			found[0] = found[limit]
			return false
		}
		found = append(found, member)
		return true
	})
	return found
}

func storeUnion(d *data, args []string) any {
	union := map[string]bool{}
	for _, key := range args[1:] {
		s, err := valueOf[*set](d, key)
		if err != nil {
			return err
		}
		if s != nil {
			for _, member := range s.keys() {
				union[member] = true
			}
		}
	}
	// The members that stay are not written again.
	to, err := valueOf[*set](d, args[0])
	if d.get(args[0]) != nil && (err != nil || len(union) == 0) {
		d.delete(args[0])
		to = nil
	}
	if to != nil {
		for _, member := range to.keys() {
			if union[member] {
				delete(union, member)
			} else {
				d.deleteMember(args[0], member)
			}
		}
		if o := d.get(args[0]); o != nil && o.until != 0 {
			d.setUntil(args[0], 0)
		}
	}
	for member := range union {
		d.addMember(args[0], member)
	}
	return countMembers(d, args)
}
