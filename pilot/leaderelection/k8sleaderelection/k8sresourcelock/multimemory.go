package k8sresourcelock

import (
	"errors"
	"strconv"
	"sync"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

var errNoVersion = errors.New("a watch event without a resourceVersion")

// pairMemory keeps the newest answers and watch events of one MultiLock's objects. The core decides which of them count.
type pairMemory struct {
	mu      sync.Mutex
	sight   core.PairView
	objects Pair // those of sight
	base    base
}

// known is all that the calls have shown by now.
func (m *pairMemory) known() (core.PairView, Pair) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sight, m.objects
}

// answered takes in a read.
func (m *pairMemory) answered(h core.Half, snap Snapshot, asked uint32) error {
	_, err := m.note(h, snap, func(half core.Snapshot) (core.PairView, bool) { return m.sight.ApplyRead(h, half, asked) })
	return err
}

// stored takes in a write's answer, or any other that is not to replace newer news.
func (m *pairMemory) stored(h core.Half, snap Snapshot) (core.Snapshot, error) {
	return m.note(h, snap, func(half core.Snapshot) (core.PairView, bool) { return m.sight.Apply(h, half) })
}

func (m *pairMemory) note(h core.Half, snap Snapshot, takes func(core.Snapshot) (core.PairView, bool)) (core.Snapshot, error) {
	half, err := coreSnapshot(snap)
	if err != nil {
		return core.Snapshot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, taken := takes(half)
	if !taken {
		return half, nil
	}
	if last := next.Of(h).Version; last > 0 {
		snap.ResourceVersion = strconv.FormatUint(last, 10) // an absent object's last one
	}
	m.sight = next
	*m.objects.half(h) = snap
	return half, nil
}

// seen takes in a watch event and returns the pair; ok is false when the event is
// outdated or the other object not known yet.
func (m *pairMemory) seen(h core.Half, snap Snapshot, self string) (pair Snapshot, ok bool, err error) {
	if snap.ResourceVersion == "" {
		return Snapshot{}, false, errNoVersion
	}
	half, err := m.stored(h, snap)
	if err != nil {
		return Snapshot{}, false, err
	}
	sight, objects := m.known()
	if !sight.ShouldShow(h, half) {
		return Snapshot{}, false, nil
	}
	return combine(sight, objects, self), true, nil
}

// sends notes a write to an object before it is sent.
func (m *pairMemory) sends(h core.Half, record core.Record, notes map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sight = m.sight.RecordWrite(h, record, coreAnnotations(notes))
}
