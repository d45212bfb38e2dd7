package simulation

import (
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// An exploration copies worlds and compares them. Both follow the fields of the types, so that a new field counts until unread
// excludes it.

// shape lists the fields of a type that refer to memory, and the fields that distinguish states.
type shape struct {
	typ   reflect.Type
	refs  []part // pointers and slices
	parts []part // of the fingerprint
}

// part is one field. Fields of embedded and contained structs are parts too.
type part struct {
	off  uintptr
	how  how
	typ  reflect.Type
	elem *shape // of a pointer or slice
}

// how is how a field is compared.
type how uint8

const (
	number8     how = iota // one byte
	number32               // four bytes
	number64               // eight bytes
	since                  // a true time or a reading of the monotonic clock, relative to now
	deadline               // the same in whole ticks, and all that are over are equal
	leased                 // a time from which a lease counts
	stamped                // a time in the record
	transitions            // relative to those in the lock
	version                // versions are compared with each other only
	text
	pointer
	list
)

// owned are the types that belong to one world.
var owned = []reflect.Type{reflect.TypeFor[world](), reflect.TypeFor[node](), reflect.TypeFor[process](), reflect.TypeFor[term](), reflect.TypeFor[call](),
	reflect.TypeFor[peer](), reflect.TypeFor[peerWork](), reflect.TypeFor[coordinator]()}

// unread are fields that do not distinguish states: constants, sums of other fields, what the random runs use, what only the checks of
// quiet, effort, reports, changes and prompt read, and what allows less while no clock is set back.
var unread = map[string]bool{
	"process.id": true, "process.key": true, "process.cfg": true, "process.serial": true, "process.took": true, "process.attempts": true,
	"process.timer": true, "process.returns": true, "process.watch": true, "process.watched": true, "process.calls": true, "process.turnsAt": true,
	"process.turns": true, "process.sentCalls": true, "process.sentReads": true, "process.sentAtCheck": true, "process.efforts": true,
	"process.askedAt": true, "process.lag": true, "process.startedAt": true, "process.n": true, "process.fresh": true,
	"process.cooledUntil": true, "process.ackedFirst": true, "process.wroteAt": true, "call.firstSent": true,
	"call.base": true, "call.attempts": true, "call.answered": true, "call.rejected": true, "call.after": true, "call.sentAt": true, "call.foreign": true,
	"view.by": true, "ClockReading.Boot": true, "ClockReading.Wall": true, "Validity.Boot": true, "Validity.Wall": true,
	"Snapshot.Sum": true, "sight.sum": true, "witness.oustedKey": true, "Since.Default": true, "Sight.Learned": true, "Efforts.Herd": true,
	"peer.id": true, "peer.key": true, "peer.n": true, "peer.turn": true, "peer.timing": true, "peer.serial": true,
	"Displaced.ByEqual": true, "coordinator.id": true, "coordinator.turn": true,
}

// deadlines are times that are compared with now only.
var deadlines = map[string]bool{
	"State.SyncBy": true, "Claim.SyncBy": true, "Sight.PollAt": true, "Effort.Next": true, "Requests.NotBefore": true, "BackOff.CoolDown": true,
	"BackOff.Until": true, "peer.due": true, "peer.roundEnds": true, "Displaced.NotBefore": true, "schedule.wake": true, "schedule.until": true,
	"process.releaseBy": true, "coordinator.due": true, "coordinator.paused": true, "coordinator.calm": true, "candidacy.spared": true, "candidacy.skipped": true,
}

// versions are numbers of changes of the store.
var versions = map[string]bool{
	"Snapshot.Version": true, "Call.Base": true, "Effort.Base": true, "Term.Token": true, "term.token": true, "call.decidedOn": true,
	"process.reached": true,
}

var shapes = func() map[reflect.Type]*shape {
	all := map[reflect.Type]*shape{}
	for _, t := range append(slices.Clone(owned), reflect.TypeFor[core.State](), reflect.TypeFor[view](), reflect.TypeFor[checks]()) {
		shapeOf(all, t)
	}
	return all
}()

var timeType = reflect.TypeFor[Time]()

var processShape, viewShape, termShape, callShape, peerShape = shapes[owned[2]], shapes[reflect.TypeFor[view]()], shapes[owned[3]], shapes[owned[4]],
	shapes[owned[5]]

var coordinatorShape = shapes[owned[7]]

func shapeOf(all map[reflect.Type]*shape, t reflect.Type) *shape {
	if s := all[t]; s != nil {
		return s
	}
	s := &shape{typ: t}
	all[t] = s
	s.add(all, t, 0, "", true)
	return s
}

// add adds the parts of a field of type t. Without read, it does not distinguish states.
func (s *shape) add(all map[reflect.Type]*shape, t reflect.Type, off uintptr, name string, read bool) {
	read = read && !unread[name]
	p := part{off: off, typ: t}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			s.add(all, f.Type, off+f.Offset, t.Name()+"."+f.Name, read)
		}
		return
	case reflect.Array:
		for i := range t.Len() {
			s.add(all, t.Elem(), off+uintptr(i)*t.Elem().Size(), name, read)
		}
		return
	case reflect.Pointer:
		if !slices.Contains(owned, t.Elem()) {
			return // constant
		}
		p.how, p.elem = pointer, shapeOf(all, t.Elem())
		s.refs = append(s.refs, p)
	case reflect.Slice:
		p.how, p.elem = list, shapeOf(all, t.Elem())
		s.refs = append(s.refs, p)
	case reflect.String:
		p.how = text
	case reflect.Func, reflect.Interface, reflect.Map:
		return // constant
	default:
		p.how = howNumber(t, name)
	}
	if read && p.typ != reflect.PointerTo(owned[0]) {
		s.parts = append(s.parts, p)
	}
}

func howNumber(t reflect.Type, name string) how {
	switch {
	case versions[name]:
		return version
	case name == "Sight.Count", strings.HasSuffix(name, ".Transitions"):
		return transitions
	case name == "sight.at", name == "process.leftAt":
		return leased
	case deadlines[name]:
		return deadline
	case t == reflect.TypeFor[core.Instant](), t == reflect.TypeFor[Time]():
		return since
	case t == reflect.TypeFor[core.Stamp]():
		return stamped
	}
	switch t.Size() {
	case 1:
		return number8
	case 4:
		return number32
	}
	return number64
}

// copier copies a world. from and to have the objects that were copied.
type copier struct{ from, to []unsafe.Pointer }

func (w *world) clone() *world {
	c := copier{make([]unsafe.Pointer, 0, 24), make([]unsafe.Pointer, 0, 24)}
	return (*world)(c.copy(shapes[owned[0]], unsafe.Pointer(w)))
}

func (c *copier) copy(s *shape, at unsafe.Pointer) unsafe.Pointer {
	if i := slices.Index(c.from, at); i >= 0 {
		return c.to[i]
	}
	n := reflect.New(s.typ)
	n.Elem().Set(reflect.NewAt(s.typ, at).Elem())
	to := n.UnsafePointer()
	c.from, c.to = append(c.from, at), append(c.to, to)
	c.refs(s, to)
	return to
}

// refs replaces what a copied object refers to by copies.
func (c *copier) refs(s *shape, to unsafe.Pointer) {
	for _, r := range s.refs {
		at := unsafe.Add(to, r.off)
		if r.how == pointer {
			if old := *(*unsafe.Pointer)(at); old != nil {
				*(*unsafe.Pointer)(at) = c.copy(r.elem, old)
			}
			continue
		}
		old := reflect.NewAt(r.typ, at).Elem()
		if old.Len() == 0 {
			old.SetZero()
			continue
		}
		list := reflect.MakeSlice(r.typ, old.Len(), old.Len())
		reflect.Copy(list, old)
		old.Set(list)
		for i := range list.Len() {
			c.refs(r.elem, unsafe.Add(list.UnsafePointer(), uintptr(i)*r.elem.typ.Size()))
		}
	}
}

// fingerprinter writes what distinguishes a world as a list of numbers.
type fingerprinter struct {
	w        *world
	words    []uint64
	versions []int // words that are versions
	stamps   []int // words that are times in records, and over
	known    []unsafe.Pointer
	orders   [][]int
	best     []int   // order of the last fingerprint
	names    [4]byte // number of pod-a, pod-b, …
	mono     core.Instant
	like     process      // see canonical
	live     []core.Write // that records have, see forget
	ranks    []uint64
	oldest   uint64  // smallest token of a kept term
	kept     []*term // see findTerms
	sights   []sight
	seen     []*term
}

// far is the distance from now at which all times are equal.
func (w *world) far() int64 {
	leases := 2
	if w.mode.Coordinated {
		leases = 5 // a candidate waits for a coordinator
	}
	return int64(time.Duration(leases)*w.timing.lease + 2*time.Second)
}

// fingerprint returns the same number for worlds that differ only in their time, in the numbers of versions, and in the names of
// processes with equal keys.
func (f *fingerprinter) fingerprint(w *world) uint64 {
	least := ^uint64(0)
	f.begin(w)
	for _, order := range f.orders {
		if len(f.orders) == 1 || w.ascends(order) {
			if h := f.inOrder(w, order); h < least {
				least, f.best = h, order
			}
		}
	}
	return max(least, 1) // 0 is a free entry of the table
}

// ascends reports whether nodes that the orders exchange have ascending summaries. Other orders need no comparison.
func (w *world) ascends(order []int) bool {
	for i, n := range order[1:] {
		a, b := w.nodes[order[i]], w.nodes[n]
		if a.key == b.key && a.summary() > b.summary() {
			return false
		}
	}
	return true
}

// summary returns a number that is equal for nodes that differ in their names only.
func (n *node) summary() int {
	sum := len(n.flying)
	if n.paused {
		sum += 10
	}
	if p := n.p; p != nil {
		sum += 20*int(p.s.Phase) + 200*int(p.s.Flight.Op) + 2000*int(p.s.Known) + 20000
	}
	return sum
}

func (f *fingerprinter) inOrder(w *world, order []int) uint64 {
	f.words, f.versions, f.known = f.words[:0], f.versions[:0], f.known[:0]
	f.stamps = f.stamps[:0]
	f.mono = w.nodes[0].clocks.mono(w.now)
	for i, n := range order {
		f.names[n] = byte(i)
	}
	if in := w.inner; in != nil {
		f.begin(in)
		for _, n := range order {
			if inside := w.nodes[n].inner; inside != nil {
				f.node(inside)
			}
		}
		f.lock(in)
		f.begin(w)
	}
	for _, n := range order {
		f.node(w.nodes[n])
	}
	f.lock(w)
	f.rank()
	f.nameStamps()
	h := uint64(len(f.words))
	for _, x := range f.words {
		hi, lo := bits.Mul64(h^x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
		h = hi ^ lo ^ bits.RotateLeft64(h, 23)
	}
	return h
}

// begin prepares the fingerprint of the world of one lock.
func (f *fingerprinter) begin(w *world) {
	f.w, f.live = w, w.liveWrites(f.live[:0])
	f.findTerms()
}

// lock adds a lock and what belongs to no node.
func (f *fingerprinter) lock(w *world) {
	f.parts(viewShape, unsafe.Pointer(&w.store.now))
	for _, c := range w.coordinators {
		like := *c
		like.canonical()
		f.parts(coordinatorShape, unsafe.Pointer(&like))
	}
	f.number(uint64(w.choosing.left))
	if w.choosing.fault("delete") >= 0 {
		f.number(uint64(w.store.now.snap.Record.Transitions))
	}
	f.string(w.defaultRevision.Revision)
	f.version(w.checks.newestToken)
	f.version(w.store.version)
	f.number(uint64(w.store.uids))
	for _, p := range w.procs {
		if p.ended && p.registered != (core.EndedTerm{}) && w.left(p.registered, w.store.now.snap) == core.HolderDied {
			f.string(p.id)
		}
	}
}

func (f *fingerprinter) node(n *node) {
	f.number(uint64(len(n.flying)))
	f.flag(n.paused)
	for _, c := range n.flying {
		f.call(c)
	}
	if q := n.q; q != nil {
		f.known = append(f.known, unsafe.Pointer(q))
		like := *q
		if like.raw = 1; q.raw != f.w.store.now.snap.Sum {
			like.raw = 0
		}
		f.parts(peerShape, unsafe.Pointer(&like))
		return
	}
	if n.p == nil {
		f.number(0)
		return
	}
	p := n.p
	f.known = append(f.known, unsafe.Pointer(p))
	f.like = *p
	f.like.canonical()
	f.forget(&f.like)
	f.forgetTerms(&f.like)
	f.parts(processShape, unsafe.Pointer(&f.like))
}

func (f *fingerprinter) call(c *call) {
	if c == nil {
		f.number(0)
		return
	}
	f.parts(callShape, unsafe.Pointer(c))
	f.version(c.base.Version)
	f.string(c.base.UID)
}

// rank replaces each version by its rank, from 1.
func (f *fingerprinter) rank() {
	all := f.ranks[:0]
	for _, i := range f.versions {
		all = append(all, f.words[i])
	}
	slices.Sort(all)
	f.ranks = all
	all = slices.Compact(all)
	for _, i := range f.versions {
		at, _ := slices.BinarySearch(all, f.words[i])
		f.words[i] = uint64(at) + 1
	}
}

func (f *fingerprinter) number(n uint64) { f.words = append(f.words, n) }

func (f *fingerprinter) flag(b bool) {
	if b {
		f.number(1)
	} else {
		f.number(0)
	}
}

func (f *fingerprinter) version(v uint64) {
	if v != 0 {
		f.versions = append(f.versions, len(f.words))
	}
	f.number(v)
}

func (f *fingerprinter) string(s string) {
	if len(s) == 5 && s[:4] == "pod-" {
		f.number(uint64(f.names[s[4]-'a']) + 1)
		return
	}
	if s == "" {
		f.number(0)
		return
	}
	h := uint64(len(s))
	for i := range len(s) {
		h = h*0x100000001b3 + uint64(s[i])
	}
	f.number(h)
}

// count adds transitions. A new lock begins with 0.
func (f *fingerprinter) count(n int) {
	if n > 0 {
		n += 1<<40 - f.w.store.now.snap.Record.Transitions
	}
	f.number(uint64(n))
}

// time adds a distance from now. Zero remains.
func (f *fingerprinter) time(t, now int64) {
	if t > 0 {
		t = min(max(t-now, -f.w.far()), f.w.far()) + 1<<60
	}
	f.number(uint64(t))
}

// stamp adds a time in a record. Times that are over are compared for equality only.
func (f *fingerprinter) stamp(t, now int64) {
	if 0 < t && t < now {
		f.stamps = append(f.stamps, len(f.words))
		f.number(uint64(t))
		return
	}
	f.time(t, now)
}

// nameStamps replaces equal times by the same number, and times without an equal by 1.
func (f *fingerprinter) nameStamps() {
	for i, at := range f.stamps {
		t := f.words[at]
		if t < 1<<32 {
			continue // it has a number
		}
		f.words[at] = 1
		for _, other := range f.stamps[i+1:] {
			if f.words[other] == t {
				f.words[at], f.words[other] = uint64(i)+2, uint64(i)+2
			}
		}
	}
}

func (f *fingerprinter) parts(s *shape, base unsafe.Pointer) {
	for i := range s.parts {
		p := &s.parts[i]
		at := unsafe.Add(base, p.off)
		switch p.how {
		case number8:
			f.number(uint64(*(*uint8)(at)))
		case number32:
			f.number(uint64(*(*uint32)(at)))
		case number64:
			f.number(*(*uint64)(at))
		case since, deadline, leased:
			f.moment(p, *(*int64)(at))
		case stamped:
			f.stamp(*(*int64)(at)*int64(time.Microsecond), f.w.nodes[0].clocks.wall(f.w.now))
		case transitions:
			f.count(*(*int)(at))
		case version:
			f.version(*(*uint64)(at))
		case text:
			f.string(*(*string)(at))
		case pointer:
			f.pointer(p.elem, *(*unsafe.Pointer)(at))
		case list:
			v := reflect.NewAt(p.typ, at).Elem()
			f.number(uint64(v.Len()))
			for i := range v.Len() {
				f.parts(p.elem, unsafe.Add(v.UnsafePointer(), uintptr(i)*p.elem.typ.Size()))
			}
		}
	}
}

func (f *fingerprinter) moment(p *part, t int64) {
	now := int64(f.mono)
	if p.typ == timeType {
		now = int64(f.w.now)
	}
	if p.how == leased {
		t += int64(f.w.timing.lease)
		if f.w.mode.peers() {
			t += int64(f.w.timing.grace())
		}
	}
	if p.how != since {
		if t <= now {
			t = 0
		} else if t < int64(core.Never) {
			t += int64(tick-1) - (t-now-1)%int64(tick) // it is noticed at the end of its tick
		}
	}
	f.time(t, now)
}

// pointer adds the number of an object, and the object when it is met first. Of an ended process, only its identity counts.
func (f *fingerprinter) pointer(s *shape, at unsafe.Pointer) {
	switch {
	case at == nil:
		f.number(0)
		return
	case s == callShape:
		f.call((*call)(at))
		return
	}
	if i := slices.Index(f.known, at); i >= 0 {
		f.number(uint64(i) + 1)
		return
	}
	f.known = append(f.known, at)
	f.number(uint64(len(f.known)))
	switch s {
	case processShape:
		f.string((*process)(at).id)
		f.flag((*process)(at).ended)
	case peerShape:
		f.string((*peer)(at).id)
		f.flag((*peer)(at).ended)
	case termShape:
		f.term((*term)(at))
	default:
		f.parts(s, at)
	}
}
