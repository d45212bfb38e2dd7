package k8sresourcelock

import (
	"errors"
	"strconv"
	"sync"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

var errNoVersion = errors.New("watch event has no resourceVersion")

// pairMemory contains the newest responses and watch events of the objects of a MultiLock. The core decides which
// of them apply.
type pairMemory struct {
	mu      sync.Mutex
	view    core.PairView
	objects Pair // the objects of view
	base    lastSeen
}

// state returns the current knowledge.
func (m *pairMemory) state() (core.PairView, Pair) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view, m.objects
}

// applyRead applies the response of a read. changes is the value of Changes when the read was sent.
func (m *pairMemory) applyRead(h core.Half, snap Snapshot, changes uint32) error {
	_, err := m.update(h, snap, func(half core.Snapshot) (core.PairView, bool) { return m.view.ApplyRead(h, half, changes) })
	return err
}

// apply applies a response or watch event that must not replace newer knowledge.
func (m *pairMemory) apply(h core.Half, snap Snapshot) (core.Snapshot, error) {
	return m.update(h, snap, func(half core.Snapshot) (core.PairView, bool) { return m.view.Apply(h, half) })
}

func (m *pairMemory) update(h core.Half, snap Snapshot, apply func(core.Snapshot) (core.PairView, bool)) (core.Snapshot, error) {
	half, err := coreSnapshot(snap)
	if err != nil {
		return core.Snapshot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, applied := apply(half)
	if !applied {
		return half, nil
	}
	if last := next.Of(h).Version; last > 0 {
		snap.ResourceVersion = strconv.FormatUint(last, 10) // an absent object keeps its last version
	}
	m.view = next
	*m.objects.half(h) = snap
	return half, nil
}

// applyEvent applies a watch event and returns the pair. ok is false if the event is outdated or the other object
// is not known yet.
func (m *pairMemory) applyEvent(h core.Half, snap Snapshot, self string) (pair Snapshot, ok bool, err error) {
	if snap.ResourceVersion == "" {
		return Snapshot{}, false, errNoVersion
	}
	half, err := m.apply(h, snap)
	if err != nil {
		return Snapshot{}, false, err
	}
	view, objects := m.state()
	if !view.ShouldShow(h, half) {
		return Snapshot{}, false, nil
	}
	return combine(view, objects, self), true, nil
}

// recordWrite records a write to an object before it is sent.
func (m *pairMemory) recordWrite(h core.Half, record core.Record, annotations map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = m.view.RecordWrite(h, record, coreAnnotations(annotations))
}
