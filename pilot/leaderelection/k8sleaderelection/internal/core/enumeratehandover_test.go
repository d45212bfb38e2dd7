package core

func (c Config) wrongAsk(s State, a Action) string {
	r := a.Notes.Request
	switch {
	case c.Coordinated && testNow.Mono < c.uncoordinatedFrom(s):
		return "a request beside a coordinator"
	case s.Phase != Following || a.Record != s.Snap.Record || a.Notes.Marker != s.Snap.Notes.Marker:
		return "a request that changes more than the request"
	case r.Identity != c.Self || r.Holder != s.Snap.Record.Holder || r.Transitions != s.Snap.Record.Transitions || r.Accepted:
		return "a request in another name, or to another term"
	case s.Unfit:
		return "one that is unfit asks for the lock"
	case s.Snap.Notes.Marker.Unfit:
		return ""
	case !Outranks(c.Key, s.Snap.Record.Key, s.Default):
		return "a request without rank"
	case testNow.Mono < s.holdEnds():
		return "a request against an operator's hold"
	}
	return ""
}

func (c Config) wrongHandOver(s State, a Action) string {
	r := c.successor(s, testNow.Mono)
	switch {
	case r.Identity == "" || !c.Coordinated && r != s.Snap.Notes.Request || r != s.Snap.Notes.Request && r.Identity != s.Snap.Preferred:
		return "a handover to somebody who is not wanted"
	case s.Phase != Releasing || s.Alive || !c.ours(s):
		return "a handover of what is not one's own, or of what runs"
	case a.Record.Holder != r.Identity || a.Record.Key != r.Key || a.Notes.Nominated != Nomination{Identity: r.Identity, Transitions: a.Record.Transitions} ||
		a.Notes.Marker != Marker{} || a.Notes.Request != Request{}:
		return "a handover to somebody who did not ask"
	case a.Notes.Hold != (Hold{}) && (r.Reason != ForOperator || !a.Notes.Hold.names(a.Record)):
		return "a hold that no operator asked for"
	case a.Record.Transitions <= s.Snap.Record.Transitions:
		return "a handover that does not count a term"
	}
	return ""
}
