package simulation

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"testing"
	"unsafe"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A plan says how the fields of a type are written, one after the other. It is made by
// reflection once, so that no field can be forgotten, and followed without: a search through
// millions of states does little else.
type plan []field

type field struct {
	kind   fieldKind
	offset uintptr
	elem   plan // of a slice
	size   uintptr
}

type fieldKind uint8

const (
	anInstant fieldKind = iota
	aDeadline
	aStamp
	aVersion
	aUID
	aText
	aBool
	anUint8
	anUint32
	anInt
	aSlice
)

var (
	instantType = reflect.TypeFor[core.Instant]()
	stampType   = reflect.TypeFor[core.Stamp]()
	coverType   = reflect.TypeFor[core.Cover]()
	momentType  = reflect.TypeFor[core.Moment]()

	lockPlan    = planOf(reflect.TypeFor[core.Snapshot](), "", 0, nil)
	defaultPlan = planOf(reflect.TypeFor[core.DefaultRevision](), "", 0, nil)
	sidePlan    = planOf(reflect.TypeFor[side](), "", 0, nil)
)

// deadlines are the instants that matter only until they have come.
var deadlines = map[string]bool{
	"PollAt": true, "SyncBy": true, "NotBefore": true, "Until": true, "Next": true, "SettleAt": true, "Prior": true, "wake": true,
}

// unsaid are the fields whose meaning is in others too.
var unsaid = map[string]bool{"Sum": true, "Why": true, "Learned": true, "Away": true}

// planOf adds to p how a value of type t is written that is a field of that name.
func planOf(t reflect.Type, name string, offset uintptr, p plan) plan {
	add := func(kind fieldKind) plan { return append(p, field{kind: kind, offset: offset}) }
	switch t {
	case instantType:
		if deadlines[name] {
			return add(aDeadline)
		}
		return add(anInstant)
	case stampType:
		return add(aStamp)
	case coverType, momentType: // the clocks agree
		return add(anInstant)
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !unsaid[f.Name] {
				p = planOf(f.Type, f.Name, offset+f.Offset, p)
			}
		}
		return p
	case reflect.Array:
		for i := range t.Len() {
			p = planOf(t.Elem(), name, offset+uintptr(i)*t.Elem().Size(), p)
		}
		return p
	case reflect.Slice:
		return append(p, field{kind: aSlice, offset: offset, elem: planOf(t.Elem(), name, 0, nil), size: t.Elem().Size()})
	case reflect.String:
		if name == "First" || name == "Second" || name == "Other" { // of a core.UID, or of one
			return add(aUID)
		}
		return add(aText)
	}
	kind, ok := map[reflect.Kind]fieldKind{
		reflect.Bool: aBool, reflect.Uint64: aVersion, reflect.Uint8: anUint8, reflect.Uint32: anUint32, reflect.Int: anInt, reflect.Int64: anInt,
	}[t.Kind()]
	if !ok {
		panic(fmt.Sprintf("a field %s of type %v cannot be written", name, t))
	}
	return add(kind)
}

func write[T any](c *canon, p plan, v *T) { c.write(p, unsafe.Pointer(v)) }

func (c *canon) write(p plan, base unsafe.Pointer) {
	for i := range p {
		f := &p[i]
		at := unsafe.Add(base, f.offset)
		switch f.kind {
		case anInstant, aDeadline:
			c.instant(*(*core.Instant)(at), f.kind == aDeadline)
		case aStamp:
			c.stamp(*(*core.Stamp)(at))
		case aVersion:
			c.version(*(*uint64)(at))
		case aUID:
			c.uid(*(*string)(at))
		case aText:
			c.text(*(*string)(at))
		case aBool, anUint8: // a bool is a byte
			c.int(int64(*(*uint8)(at)))
		case anUint32:
			c.int(int64(*(*uint32)(at)))
		case anInt:
			c.int(*(*int64)(at))
		case aSlice:
			s := (*struct {
				data   unsafe.Pointer
				len, _ int
			})(at)
			c.int(int64(s.len))
			for j := range s.len {
				c.write(f.elem, unsafe.Add(s.data, uintptr(j)*f.size))
			}
		}
	}
}

// TestKeyForgetsNoField: a change of any field of a side makes another state, but of those whose
// meaning is in others too.
func TestKeyForgetsNoField(t *testing.T) {
	x := &explorer{exploration: exploration{candidates: 1}, seed: maphash.MakeSeed()}
	first := model{now: 1 << 50, sides: []side{{wires: []wire{{}}, events: []core.Snapshot{{}}}}}
	key := x.key(&first)
	fields := 0
	var change func(v reflect.Value, path string)
	change = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				f, name := v.Field(i), v.Type().Field(i).Name
				switch {
				case unsaid[name]:
				case (v.Type() == coverType || v.Type() == momentType) && i > 0: // the clocks agree
				default:
					change(reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem(), path+"."+name)
				}
			}
			return
		case reflect.Array, reflect.Slice:
			for i := range v.Len() {
				change(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
			return
		case reflect.Bool:
			v.SetBool(true)
		case reflect.String:
			v.SetString("some")
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			v.SetUint(1)
		default:
			v.SetInt(1<<50 + 1)
		}
		if fields++; x.key(&first) == key {
			t.Errorf("%s is not in the key", path)
		}
		v.SetZero()
	}
	change(reflect.ValueOf(&first.sides[0]).Elem(), "side")
	t.Logf("%d fields", fields)
}
