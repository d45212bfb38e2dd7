package simulation

import (
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// key is equal for states that behave alike: instants count from now, versions and UIDs by
// their order, and candidates of one rank may change places.
func (x *explorer) key(m *model) uint64 {
	orders := [][]int{identity(len(m.sides))}
	if !x.ranked {
		orders = permutations(len(m.sides))
	}
	versions := versionsOf(m)
	least := uint64(0)
	for n, order := range orders {
		c := canon{now: m.now, wall: m.moment().Wall, versions: versions, names: map[string]string{"": ""}}
		for place, i := range order {
			c.names[string(rune('a'+i))] = string(rune('a' + place))
		}
		c.hash.SetSeed(x.seed)
		c.model(m, order)
		if sum := c.hash.Sum64(); n == 0 || sum < least {
			least = sum
		}
	}
	return least
}

func identity(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func permutations(n int) [][]int {
	if n == 1 {
		return [][]int{{0}}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return all
}

// canon writes a state without what does not matter.
type canon struct {
	hash     maphash.Hash
	now      core.Instant
	wall     int64
	versions []uint64
	names    map[string]string
	uids     []string
}

func (c *canon) int(v int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	c.hash.Write(b[:])
}

func (c *canon) version(v uint64) {
	i, _ := slices.BinarySearch(c.versions, v)
	c.int(int64(i))
}

// oldest is for how long it matters when something was.
const oldest = -18 * time.Second

// instant is counted from now. Of a deadline that has passed nothing matters any more.
func (c *canon) instant(at core.Instant, deadline bool) {
	switch {
	case at == 0 || at == core.Never:
		c.int(int64(at))
	case deadline:
		c.int(max(1, int64(c.now.Until(at))))
	default:
		c.int(max(int64(oldest), int64(c.now.Until(at))))
	}
}

func (c *canon) model(m *model, order []int) {
	c.int(int64(m.now % core.Instant(time.Second)))
	c.value(reflect.ValueOf(&m.lock).Elem(), "")
	c.value(reflect.ValueOf(&m.def).Elem(), "")
	c.version(m.token)
	for _, n := range []int{m.delays, m.losses, m.mishaps, m.deletions, m.flips, m.uids} {
		c.int(int64(n))
	}
	for _, i := range order {
		c.side(&m.sides[i])
	}
}

var (
	instantType = reflect.TypeFor[core.Instant]()
	stampType   = reflect.TypeFor[core.Stamp]()
	coverType   = reflect.TypeFor[core.Cover]()
	momentType  = reflect.TypeFor[core.Moment]()
)

// deadlines are the instants that matter only until they have come.
var deadlines = map[string]bool{
	"PollAt": true, "SyncBy": true, "AskAt": true, "BackOff": true, "Rebuffed": true, "Next": true,
	"LimitAt": true, "ReleaseBy": true, "SettleAt": true, "Prior": true, "wake": true,
}

func (c *canon) value(v reflect.Value, name string) {
	switch v.Type() {
	case instantType:
		c.instant(core.Instant(v.Int()), deadlines[name])
		return
	case stampType:
		if v.Int() != 0 {
			c.int(v.Int()*1000 - c.wall)
			return
		}
	case coverType, momentType: // the clocks agree
		c.instant(core.Instant(v.Field(0).Int()), false)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		c.fields(v)
	case reflect.Array, reflect.Slice:
		c.int(int64(v.Len()))
		for i := range v.Len() {
			c.value(v.Index(i), name)
		}
	case reflect.String:
		c.text(v.String(), name)
	case reflect.Bool:
		if v.Bool() {
			c.int(1)
		} else {
			c.int(0)
		}
	case reflect.Uint64:
		c.version(v.Uint())
	case reflect.Uint8, reflect.Uint32:
		c.int(int64(v.Uint()))
	default:
		c.int(v.Int())
	}
}

// fieldNames are those of each type, which reflect is slow to tell.
var fieldNames = map[reflect.Type][]string{}

func namesOf(t reflect.Type) []string {
	if fieldNames[t] == nil {
		for i := range t.NumField() {
			fieldNames[t] = append(fieldNames[t], t.Field(i).Name)
		}
	}
	return fieldNames[t]
}

func (c *canon) fields(v reflect.Value) {
	for i, name := range namesOf(v.Type()) {
		switch name {
		case "Sum", "Why", "Learned", "Away": // what they say is in other fields too
		default:
			c.value(v.Field(i), name)
		}
	}
}

// side adds what its fields do not say as they stand: what was learned since a call was sent.
func (c *canon) side(s *side) {
	c.value(reflect.ValueOf(s).Elem(), "")
	c.int(int64(s.s.Learned - s.s.Flight.Learned))
	c.instant(s.s.Away.Prior, true)
}

func (c *canon) text(s, name string) {
	if name == "UID" {
		i := slices.Index(c.uids, s)
		if i < 0 {
			i = len(c.uids)
			c.uids = append(c.uids, s)
		}
		c.int(int64(i))
		return
	}
	if n, ok := c.names[s]; ok {
		s = n
	}
	c.hash.WriteString(s)
	c.hash.WriteByte(0)
}

// versionsOf is every version that matters in m, in order.
func versionsOf(m *model) []uint64 {
	all := []uint64{0, m.token, m.lock.Version}
	for i := range m.sides {
		s := &m.sides[i]
		all = append(all, s.s.Snap.Version, s.s.Flight.Base, s.s.Term.Token)
		for _, w := range s.wires {
			all = append(all, w.base.Version, w.snap.Version)
		}
		for _, e := range s.events {
			all = append(all, e.Version)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
