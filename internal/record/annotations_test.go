package record

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Only a valid marker is decoded.
func TestMarker(t *testing.T) {
	for s, want := range map[string]Marker{
		"v1 a 3":                {Identity: "a", Transitions: 3},
		"v1 a 3 handover":       {Identity: "a", Transitions: 3, Handover: true},
		"v1 a 3 unfit":          {Identity: "a", Transitions: 3, Unfit: true},
		"v1 a 3 handover unfit": {Identity: "a", Transitions: 3, Handover: true, Unfit: true},
		"v1 a 3 uncoordinated":  {Identity: "a", Transitions: 3, Uncoordinated: true},
		"":                      {}, "v1": {}, "v1 a": {}, "v2 a 3": {}, "v1  3": {}, "v1 a x": {}, "v1 a 3 later": {}, "v1 a 3 ": {},
	} {
		got := parseMarker(s)
		if got != want {
			t.Errorf("%q: %+v, want %+v", s, got, want)
		}
		if want != (Marker{}) && got.Encode() != s {
			t.Errorf("%q is written as %q", s, got.Encode())
		}
	}
}

func TestRequestAndHold(t *testing.T) {
	for s, believed := range map[string]bool{
		`{"identity":"b","key":"canary","reason":"default-revision"}`: true,
		`{"identity":"b c","reason":"default-revision"}`:              false,
		`{"identity":"b c","reason":"operator"}`:                      false,
		`{"reason":"operator"}`:                                       true, // to step down
		`{"reason":"default-revision"}`:                               false,
		`{"identity":"b","key":"a b"}`:                                false,
		`{"identity":7}`:                                              false,
		``:                                                            false,
		`null`:                                                        false,
	} {
		r := parseRequest(s)
		if (r != Request{}) != believed {
			t.Errorf("%s: %+v", s, r)
		}
		if again := parseRequest(r.Encode()); believed && again != r {
			t.Errorf("%+v became %+v", r, again)
		}
	}
	for s, believed := range map[string]bool{`{"holder":"a","seconds":5}`: true, `{"holder":7}`: false, ``: false} {
		if h := fromJSON[Hold](s); (h != Hold{}) != believed {
			t.Errorf("%s: %+v", s, h)
		}
	}
}

// The release of a witness counts for a free lock of its term, and for the nomination of a coordinator in the next term.
func TestWitnessRelease(t *testing.T) {
	free := Snapshot{Exists: true, Content: Readable, Record: Record{Transitions: 3}}
	held := free
	held.Record.Holder = "b"
	nominated := Snapshot{Exists: true, Content: Readable, Strategy: true, Record: Record{Holder: "b", Transitions: 4}}
	for _, c := range []struct {
		value string
		lock  Snapshot
		want  time.Duration
	}{
		{"v1 a 3 53ms", free, 53 * time.Millisecond},
		{"v1 a 3 53ms", nominated, 53 * time.Millisecond},
		{"v1 a 3 53ms", held, 0},
		{"v1 a 3 53ms", Snapshot{}, 0},
		{"v1 a 2 53ms", free, 0},
		{"v2 a 3 53ms", free, 0},
		{"v1 a 3 -1s", free, 0},
		{"v1 a 3 2h", free, 0},
		{"v1 a 3 soon", free, 0},
		{"v1 a 3", free, 0},
		{"v1 a 3 1s more", free, 0},
		{"", free, 0},
	} {
		snap := c.lock.Decode(map[string]string{WitnessReleaseAnnotation: c.value})
		if got := snap.WitnessRelease(); got != c.want {
			t.Errorf("%q on %+v: %v, want %v", c.value, c.lock.Record, got, c.want)
		}
	}
	if got := (WitnessRelease{Identity: "a", Transitions: 3, After: 53 * time.Millisecond}).Encode(); got != "v1 a 3 53ms" {
		t.Errorf("encoded as %q", got)
	}
}

func TestEncode(t *testing.T) {
	if got := (Annotations{}).Encode(); len(got) != 0 {
		t.Errorf("empty annotations are encoded as %v", got)
	}
	got := Annotations{Marker: Marker{Identity: "a", Transitions: 3}, Nominated: Nomination{Identity: "b"}}.Encode()
	want := map[string]string{MarkerAnnotation: "v1 a 3", NominatedAnnotation: "b"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestInvalid(t *testing.T) {
	stored := map[string]string{MarkerAnnotation: "v2 a 3", HandoverRequestAnnotation: `{}`, HoldAnnotation: `{"holder":"a"}`, NominatedAnnotation: "a"}
	if got, want := (Snapshot{}).Decode(stored).Annotations.Invalid(stored), []string{HandoverRequestAnnotation, MarkerAnnotation}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A nomination is for the term in the hold of a transfer to the same holder, otherwise for the recorded term.
func TestNomination_Term(t *testing.T) {
	snap := Snapshot{Exists: true, Content: Readable, Record: Record{Transitions: 5}}
	named := func(hold Hold) map[string]string {
		return map[string]string{NominatedAnnotation: "a", HoldAnnotation: hold.Encode()}
	}
	for _, c := range []struct {
		hold Hold
		want Nomination
	}{
		{Hold{Reason: HoldForTransfer, Holder: "a", Transitions: 4}, Nomination{Identity: "a", Transitions: 4}},
		{Hold{Reason: HoldForTransfer, Holder: "b", Transitions: 4}, Nomination{Identity: "a", Transitions: 5}},
		{Hold{Reason: HoldForPause, Holder: "a", Transitions: 4}, Nomination{Identity: "a", Transitions: 5}},
		{Hold{}, Nomination{Identity: "a", Transitions: 5}},
	} {
		if got := snap.Decode(named(c.hold)).Annotations.Nominated; got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.hold, got, c.want)
		}
	}
	snap.Strategy = true
	snap.Record.Holder = "b"
	snap.Record.Renewed = 9
	got := snap.Decode(named(Hold{}))
	if want := (Nomination{Identity: "b", Transitions: 5, Uncounted: true}); got.Annotations.Nominated != want || got.Annotations.Encode()[NominatedAnnotation] != "" {
		t.Errorf("named by a coordinator: %+v with an annotation; want %+v without", got.Annotations.Nominated, want)
	}
	if !got.ByCoordinator() || got.Record.Acquired != 9 {
		t.Errorf("named by a coordinator: %+v", got)
	}
	snap.Record.Acquired = 7
	if got := snap.Decode(named(Hold{})).Annotations.Nominated; got.Uncounted {
		t.Errorf("after the first own write: %+v", got)
	}
	if got := snap.Decode(map[string]string{HoldAnnotation: Hold{Reason: HoldForTransfer, Transitions: 4}.Encode()}).Annotations.Nominated; got != (Nomination{}) {
		t.Errorf("no nomination: %+v", got)
	}
}

// A nomination counts until the first own write of the nominee, which changes renewTime, writes a marker or begins another term.
func TestNominated(t *testing.T) {
	for name, c := range map[string]struct {
		acquired, renewed Stamp
		nominated, marker string
		want              bool
	}{
		"by a coordinator":                  {0, 5, "", "", true},
		"by a coordinator, a former leader": {0, 5, "", "v1 a 3", true},
		"by a leader":                       {5, 5, "a", "", true},
		"peer that kept the annotation":     {5, 6, "a", "", false},
		"leader that kept the annotation":   {5, 5, "a", "v1 a 3", false},
		"marker of an earlier term":         {5, 5, "a", "v1 a 2", true},
		"annotation names another":          {5, 5, "b", "", false},
		"renewed, without the annotation":   {5, 6, "", "", false},
		"acquired now, without annotations": {5, 5, "", "", false},
	} {
		snap := Snapshot{Exists: true, Content: Readable, Strategy: true, Record: Record{Holder: "a", Transitions: 3, Acquired: c.acquired, Renewed: c.renewed}}
		snap = snap.Decode(map[string]string{NominatedAnnotation: c.nominated, MarkerAnnotation: c.marker})
		if snap.Nominated() != c.want || snap.Idle() != c.want {
			t.Errorf("%s: nominated %v", name, !c.want)
		}
	}
}

// A marker counts for its holder and term. Otherwise it names a leader that was displaced. A request and a hold count for
// their term only.
func TestAnnotations_CountInTheirTerm(t *testing.T) {
	held := Snapshot{Exists: true, Content: Readable, Record: Record{Holder: "a", Transitions: 3, Acquired: 5, Renewed: 6}}
	for name, c := range map[string]struct {
		holder              string
		term                int
		acting, asked, held bool
	}{
		"this term":      {"a", 3, true, true, true},
		"another term":   {"a", 2, false, false, false},
		"another holder": {"c", 3, false, false, false},
	} {
		snap := held.Decode(Annotations{
			Marker:  Marker{Identity: c.holder, Transitions: c.term},
			Request: Request{Identity: "b", Holder: c.holder, Transitions: c.term, Reason: ForUnfit},
			Hold:    Hold{Holder: c.holder, Transitions: c.term, Seconds: 9, Reason: HoldForPause},
		}.Encode())
		if snap.Acting() != c.acting || (snap.Former() == "") != c.acting || snap.Addressed() != c.asked || snap.OnHold() != c.held {
			t.Errorf("%s: %+v", name, snap)
		}
	}
}

func TestBounded(t *testing.T) {
	const most = int(MaxHold / time.Second)
	if h, r := (Hold{Seconds: most + 1}).Bounded(), (Request{HoldSeconds: most + 1}).Bounded(); h.Seconds != most || r.HoldSeconds != most {
		t.Errorf("%+v, %+v", h, r)
	}
	if h := (Hold{Seconds: -1}).Bounded(); h.Seconds != 0 {
		t.Errorf("%+v", h)
	}
}

func TestValidate(t *testing.T) {
	for identity, want := range map[string]string{
		"pod-a": "", strings.Repeat("x", 253): "",
		"": "identity is empty", strings.Repeat("x", 254): "254 bytes", "pod a": "white space", "pod\na": "white space", "pod\x00": "control", "pod\xff": "UTF-8",
	} {
		err := ValidateIdentity(identity)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error %v, want %q", identity, err, want)
		}
	}
	for key, valid := range map[string]bool{"": true, "^stable": true, "a b": false} {
		if err := ValidateKey(key); (err == nil) != valid {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

// FuzzAnnotations checks that annotations which count can be written and read the same again.
func FuzzAnnotations(f *testing.F) {
	f.Add("v1 a 3 handover", `{"identity":"b","reason":"operator"}`, "b", `{"holder":"b","transitions":3,"reason":"transfer"}`, "v1 a 2 53ms", "b", 3, false)
	f.Add("v1 a -1 unfit unfit", `{"identity":"\u0000"}`, "", `{"seconds":-9}`, "v1 a 02 1h0m", "", 0, true)
	f.Fuzz(func(t *testing.T, marker, request, nominated, hold, witness, holder string, transitions int, strategy bool) {
		lock := Snapshot{Exists: true, Content: Readable, Strategy: strategy, Record: Record{Holder: holder, Transitions: transitions}}
		snap := lock.Decode(map[string]string{
			MarkerAnnotation: marker, HandoverRequestAnnotation: request, NominatedAnnotation: nominated, HoldAnnotation: hold, WitnessReleaseAnnotation: witness,
		})
		if again := lock.Decode(snap.Annotations.Encode()); again != snap {
			t.Errorf("%+v became %+v", snap.Annotations, again.Annotations)
		}
		if snap.Acting() && snap.Former() != "" || snap.Nominated() && snap.Acting() && !strategy {
			t.Errorf("%+v", snap)
		}
	})
}
