package k8sresourcelock

import (
	"fmt"
	"strconv"
	"sync"
)

// pairMemory is the newest that is known of each object of a pair, from whatever call:
// what one call shows must not take back what another has shown.
type pairMemory struct {
	mu    sync.Mutex
	sides [2]remembered
	wrote [2]uint64 // the versions that the latest write of both made
	base  Snapshot
}

type remembered struct {
	side
	known   bool
	changes int
}

// asked is to be given back with the answer to a read that is sent now.
func (m *pairMemory) asked(i int) (changes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sides[i].changes
}

// answered takes in a read. One that was sent after all that is known counts even if it
// is older: a store can be restored from a backup.
func (m *pairMemory) answered(i int, snap Snapshot, asked int) error {
	return m.note(i, snap, func(now remembered, next side) bool {
		return now.changes == asked || next.version >= now.version
	})
}

// stored takes in a write's answer, or any other that is not to replace newer news.
func (m *pairMemory) stored(i int, snap Snapshot) error {
	return m.note(i, snap, func(now remembered, next side) bool { return next.version >= now.version })
}

func (m *pairMemory) note(i int, snap Snapshot, counts func(now remembered, next side) bool) error {
	next := side{Snapshot: snap}
	if snap.ResourceVersion != "" {
		version, err := strconv.ParseUint(snap.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("resourceVersion %q is not a decimal number: %w", snap.ResourceVersion, err)
		}
		next.version = version
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := &m.sides[i]
	if !counts(*now, next) {
		return nil
	}
	if !snap.Exists {
		next.version = max(next.version, now.version) // later than all that was there
	}
	*now = remembered{side: next, known: true, changes: now.changes + 1}
	return nil
}

// seen takes in a watch event and returns the pair; ok is false when the event is
// outdated or the other object not known yet.
func (m *pairMemory) seen(i int, snap Snapshot, self string) (pair Snapshot, ok bool, err error) {
	version, err := strconv.ParseUint(snap.ResourceVersion, 10, 64)
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("resourceVersion %q is not a decimal number: %w", snap.ResourceVersion, err)
	}
	if err := m.stored(i, snap); err != nil {
		return Snapshot{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if version < m.sides[i].version || !m.sides[0].known || !m.sides[1].known {
		return Snapshot{}, false, nil
	}
	return m.pair(self), true, nil
}

func (m *pairMemory) combined(self string) Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pair(self)
}

// pair is what the two make together. The caller holds mu.
func (m *pairMemory) pair(self string) Snapshot {
	p, s := m.sides[0].side, m.sides[1].side
	p.echo, s.echo = p.version <= m.wrote[0], s.version <= m.wrote[1]
	return combine(p, s, self)
}

// wroteBoth notes what a write of both has made of them.
func (m *pairMemory) wroteBoth(first, second Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote = [2]uint64{sideOf(first).version, sideOf(second).version}
}

// overtaken reports whether something newer than these two is known.
func (m *pairMemory) overtaken(first, second Snapshot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sides[0].version > sideOf(first).version || m.sides[1].version > sideOf(second).version
}

func (m *pairMemory) setBase(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.base = s
}

func (m *pairMemory) getBase() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.base
}
