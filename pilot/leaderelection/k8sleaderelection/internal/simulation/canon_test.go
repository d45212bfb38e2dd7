package simulation

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// key is equal for states that behave alike: instants count from now, versions and UIDs by
// their order, and candidates of one rank may change places.
func (x *explorer) key(m *model) uint64 {
	if x.orders == nil {
		x.orders = [][]int{identity(len(m.sides))}
		if !x.ranked {
			x.orders = permutations(len(m.sides))
		}
	}
	c := &x.canon
	c.now, c.wall = m.now, m.moment().Wall
	c.versions = versionsOf(m, c.versions[:0])
	least := uint64(0)
	for n, order := range x.orders {
		for place, i := range order {
			c.places[i] = byte('a' + place)
		}
		c.out, c.uids = c.out[:0], c.uids[:0]
		c.model(m, order)
		if sum := maphash.Bytes(x.seed, c.out); n == 0 || sum < least {
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
	out      []byte
	now      core.Instant
	wall     int64
	versions []uint64
	places   [8]byte // the name of each candidate's place
	uids     []string
}

func (c *canon) int(v int64) { c.out = binary.AppendVarint(c.out, v) }

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

func (c *canon) stamp(at core.Stamp) {
	if at == 0 {
		c.int(0)
		return
	}
	c.int(int64(at)*1000 - c.wall)
}

func (c *canon) uid(s string) {
	i := slices.Index(c.uids, s)
	if i < 0 {
		i = len(c.uids)
		c.uids = append(c.uids, s)
	}
	c.int(int64(i))
}

// text writes a name as that of the candidate's place.
func (c *canon) text(s string) {
	c.int(int64(len(s)))
	if len(s) == 1 && s[0] >= 'a' && int(s[0]-'a') < len(c.places) {
		c.out = append(c.out, c.places[s[0]-'a'])
		return
	}
	c.out = append(c.out, s...)
}

func (c *canon) model(m *model, order []int) {
	c.int(int64(m.now % core.Instant(time.Second)))
	write(c, lockPlan, &m.lock)
	write(c, defaultPlan, &m.def)
	c.version(m.token)
	for _, n := range []int{m.delays, m.losses, m.mishaps, m.deletions, m.flips, m.uids} {
		c.int(int64(n))
	}
	for _, i := range order {
		c.side(&m.sides[i])
	}
}

// side adds what its fields do not say as they stand: what was learned since a call was sent.
func (c *canon) side(s *side) {
	write(c, sidePlan, s)
	c.int(int64(s.s.Learned - s.s.Flight.Learned))
	c.instant(s.s.Earlier.Away.Prior, true)
}

// versionsOf is every version that matters in m, in order.
func versionsOf(m *model, all []uint64) []uint64 {
	all = append(all, 0, m.token, m.lock.Version)
	for i := range m.sides {
		s := &m.sides[i]
		all = append(all, s.s.Snap.Version, s.s.Flight.Base, s.s.Term.Token)
		for j := range s.wires {
			all = append(all, s.wires[j].base.Version, s.wires[j].snap.Version)
		}
		for j := range s.events {
			all = append(all, s.events[j].Version)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
