package serve

import (
	"context"
	"reflect"
	"time"
)

// smallResponse is the size up to which a response is never refused: it counts, but is sent even if
// the quota is used up.
const smallResponse = 32 << 10

// A response is the part of the quota for responses that is reserved for the response to one
// request. It is not safe for concurrent use.
type response struct {
	quota  *quota
	client string
	n      int
}

// Reserve waits until the quota has room for as much as a request may read, and reserves that much.
// Requests that may read many entries reserve before they read any. If something is reserved
// already, Reserve does nothing.
func (r *response) Reserve(ctx context.Context) error {
	if r.n > 0 {
		return nil
	}
	err := r.quota.wait(ctx, r.client, maxReadBytes)
	if err == nil {
		r.n = maxReadBytes
	}
	return err
}

// Charge changes what is reserved to the size of the response's body, before the body is encoded.
// It returns a problem with [userdb.CodeUnavailable] if that is much more and the quota has no room
// for it.
func (r *response) Charge(body any) error {
	more := memoryOf(body) - r.n
	if more > smallResponse+r.n/4 {
		if err := r.quota.take(r.client, more); err != nil {
			return err
		}
	} else {
		r.quota.give(r.client, -more)
	}
	r.n += more
	return nil
}

// release gives back what is reserved. Calling it again does nothing.
func (r *response) release() {
	r.quota.give(r.client, r.n)
	r.n = 0
}

// memoryOf returns how many bytes a value takes, with everything that it refers to.
func memoryOf(v any) int {
	if v == nil {
		return 0
	}
	return int(reflect.TypeOf(v).Size()) + referredMemory(reflect.ValueOf(v))
}

// referredMemory returns how many bytes everything that a value refers to takes.
func referredMemory(v reflect.Value) (n int) {
	switch t := v.Type(); t.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int(v.Elem().Type().Size()) + referredMemory(v.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() { // it refers to a location, which all times share
			return 0
		}
		for i := range v.NumField() {
			n += referredMemory(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice {
			n = v.Len() * int(t.Elem().Size())
		}
		if hasReferences(t.Elem()) {
			for i := range v.Len() {
				n += referredMemory(v.Index(i))
			}
		}
	case reflect.Map:
		if t == reflect.TypeFor[Facets]() { // most of what is sent
			for field, value := range v.Interface().(Facets) {
				n += int(t.Key().Size()+t.Elem().Size()) + len(field) + len(value.Codec()) + len(value.Wire())
			}
			return n
		}
		for all := v.MapRange(); all.Next(); {
			n += int(t.Key().Size()+t.Elem().Size()) + referredMemory(all.Key()) + referredMemory(all.Value())
		}
	}
	return n
}

// hasReferences reports whether values of a type may refer to memory of their own.
func hasReferences(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() > reflect.Complex128
}
