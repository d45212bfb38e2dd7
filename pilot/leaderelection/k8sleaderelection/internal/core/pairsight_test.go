package core

import "testing"

// A leader has written its record twice to both objects. Others may have written a hold or a label to either.
func TestAnnotationFrom_OwnWrites(t *testing.T) {
	none, old, set := Hold{}, Hold{Holder: "b", Seconds: 9}, Hold{Holder: "b", Seconds: 5}
	first, second := Record{Holder: "b", Renewed: 1e6}, Record{Holder: "b", Renewed: 2e6}
	object := func(version uint64, r Record, h Hold) Snapshot {
		return Snapshot{Exists: true, Content: Readable, Version: version, Record: r, Annotations: Annotations{Hold: h}}
	}
	for name, c := range map[string]struct {
		sent               Hold // by the second write
		primary, secondary Snapshot
		want               Half
	}{
		"no other writer":                                     {old, object(5, second, old), object(6, second, old), Secondary},
		"on both, the primary last":                           {old, object(9, second, set), object(8, second, Hold{Seconds: 1}), Primary},
		"on both, the secondary last":                         {old, object(8, second, set), object(9, second, Hold{Seconds: 1}), Secondary},
		"removed, second write missing":                       {none, object(7, second, none), object(6, first, old), Primary},
		"removed by others from the secondary":                {old, object(5, second, old), object(7, second, none), Primary},
		"removed by others from the primary, no second write": {old, object(7, second, none), object(6, first, old), Secondary},
	} {
		var v PairView
		for _, r := range []Record{first, second} {
			sent := Annotations{Hold: old}
			if r == second {
				sent.Hold = c.sent
			}
			v = v.RecordWrite(Primary, r, sent).RecordWrite(Secondary, r, sent)
		}
		v.Pair = Pair{c.primary, c.secondary}
		if got := v.annotationFrom(onlyHold); got != c.want {
			t.Errorf("%s: object %d counts", name, got)
		}
		requested := v // a request in the secondary does not change the result
		requested.Secondary.Annotations.Request = Request{Identity: "c"}
		if requested.annotationFrom(onlyHold) != c.want || requested.annotationFrom(onlyRequest) != Secondary {
			t.Errorf("%s, and a request: objects %d and %d count", name, requested.annotationFrom(onlyHold), requested.annotationFrom(onlyRequest))
		}
	}
}

// The stored write stays the own one while later writes do not arrive.
func TestAnnotationFrom_UnacknowledgedWrites(t *testing.T) {
	record := func(n Stamp) Record { return Record{Holder: "b", Renewed: n * 1e6} }
	hold, resumed := Hold{Holder: "b", Seconds: 9}, Hold{Holder: "b"}
	for _, ordered := range []Half{Primary, Secondary} {
		version := uint64(0)
		var v PairView
		shows := func(h Half, r Record, by Hold) {
			version++
			v, _ = v.Apply(h, Snapshot{Exists: true, Content: Readable, Version: version, Record: r, Annotations: Annotations{Hold: by}})
		}
		for n := range Stamp(2) {
			for _, h := range []Half{Primary, Secondary} {
				v = v.RecordWrite(h, record(n+1), Annotations{Hold: hold})
				shows(h, record(n+1), hold)
			}
		}
		for n := range Stamp(5) {
			v = v.RecordWrite(ordered.Other(), record(n+3), Annotations{Hold: hold})
		}
		shows(ordered, record(2), resumed)
		shows(ordered.Other(), record(2), hold) // with a label
		if got := v.annotationFrom(onlyHold); got != ordered {
			t.Errorf("hold on %d: after lost writes and a label, object %d counts", ordered, got)
		}
	}
}

// A hold that was written to both objects arrives late on one, after it was replaced on the other.
func TestAnnotationFrom_LateEvent(t *testing.T) {
	old, both, next := Hold{Holder: "b", Seconds: 9}, Hold{Holder: "b"}, Hold{Holder: "b", Seconds: 5}
	for _, late := range []Half{Primary, Secondary} {
		version := uint64(0)
		var v PairView
		shows := func(h Half, r Record, n Annotations) {
			version++
			v, _ = v.Apply(h, Snapshot{Exists: true, Content: Readable, Version: version, Record: r, Annotations: n})
		}
		renews := func(h Half, r Record, n Annotations) { v = v.RecordWrite(h, r, n); shows(h, r, n) }
		first, second := Record{Holder: "b", Renewed: 1e6}, Record{Holder: "b", Renewed: 2e6}
		renews(Primary, first, Annotations{Hold: old})
		renews(Secondary, first, Annotations{Hold: old})
		shows(late.Other(), first, Annotations{Hold: both})
		shows(late.Other(), first, Annotations{Hold: both, Request: Request{Identity: "c"}}) // of another kind
		shows(late.Other(), first, Annotations{Hold: next})
		if got := v.annotationFrom(onlyHold); got != late.Other() {
			t.Errorf("late on %d: before it arrives, object %d counts", late, got)
		}
		renews(late.Other(), second, Annotations{Hold: next})
		if v = v.RecordWrite(late, second, Annotations{Hold: next}); v.outdated(late, onlyHold) || v.outdated(late, onlyRequest) {
			t.Errorf("late on %d: an own annotation counts as outdated", late)
		}
		shows(late, first, Annotations{Hold: both, Request: Request{Identity: "c"}})
		if got := v.annotationFrom(onlyHold); got != late.Other() || !v.outdated(late, onlyHold) || !v.outdated(late, onlyRequest) {
			t.Errorf("late on %d: object %d counts, hold outdated: %v, request: %v", late, got, v.outdated(late, onlyHold), v.outdated(late, onlyRequest))
		}
		renews(late, second, Annotations{Hold: next})
		shows(late, second, Annotations{Hold: both})
		if got := v.annotationFrom(onlyHold); got != late || v.outdated(late, onlyHold) {
			t.Errorf("late on %d: repeated, object %d counts, outdated: %v", late, got, v.outdated(late, onlyHold))
		}
	}
}

// The second write of a renewal keeps annotations that others wrote to the secondary object.
func TestPairWrite_MergeAnnotations(t *testing.T) {
	r := Record{Holder: "b", Renewed: 1e6, Transitions: 3}
	object := func(n Annotations) Snapshot {
		return Snapshot{Exists: true, Content: Readable, Record: r, Annotations: n}
	}
	old, set := Hold{Holder: "b", Seconds: 9}, Hold{Holder: "b", Seconds: 5}
	sent := Annotations{Hold: old, Request: Request{Identity: "c"}}
	late := PairView{Pair: Pair{Secondary: object(Annotations{Hold: set})}}
	late.former[Primary].Hold = set
	for name, x := range map[string]struct {
		was, now Annotations
		sight    PairView
		term     int
		want     Annotations
	}{
		"another hold":     {Annotations{Hold: old}, Annotations{Hold: set}, PairView{}, 3, Annotations{Hold: set, Request: sent.Request}},
		"a request":        {Annotations{Hold: old}, Annotations{Hold: old, Request: Request{Identity: "d"}}, PairView{}, 3, Annotations{Hold: old, Request: Request{Identity: "d"}}},
		"an outdated hold": {Annotations{Hold: old}, Annotations{Hold: set}, late, 3, sent},
		"a new term":       {Annotations{Hold: old}, Annotations{Hold: set}, PairView{}, 4, sent},
	} {
		w := PairWrite{Self: "b", Base: Pair{object(Annotations{}), object(x.was)}, Record: r}
		w.Record.Transitions = x.term
		if got := w.MergeAnnotations(x.sight, object(x.now), sent); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

// A new hold on one object also replaces the hold on the other, if that is in the same term.
func TestPairWrite_ReplacesHold(t *testing.T) {
	r := Record{Holder: "b", Renewed: 1e6, Transitions: 3}
	old, set := Hold{Holder: "b", Seconds: 9}, Hold{Holder: "b", Seconds: 5}
	object := func(h Hold) Snapshot {
		return Snapshot{Exists: true, Content: Readable, Record: r, Annotations: Annotations{Hold: h}}
	}
	w := PairWrite{Record: r}
	for name, x := range map[string]struct {
		other Snapshot
		want  bool
	}{
		"another hold": {object(old), true}, "the same": {object(set), false}, "none": {object(Hold{}), false},
		"of another term": {Snapshot{Exists: true, Content: Readable, Annotations: Annotations{Hold: old}}, false},
	} {
		if got := w.ReplacesHold(x.other, set); got != x.want {
			t.Errorf("the other object shows %s: replaced %v", name, got)
		}
	}
}
