package simulation

import (
	"fmt"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// scenarios has the inputs of each process as a golden scenario of package core (internal/core/testdata).
type scenarios map[string]*scenario

type scenario struct {
	text        strings.Builder
	last        core.Record // latest own write
	annotations core.Annotations
}

// add writes one input and remembers the write of the action.
func (all scenarios) add(p *process, in core.Input, a core.Action) {
	name := p.String()
	if p.w.outer != nil {
		name += ", second lock"
	}
	s := all[name]
	if s == nil {
		s = &scenario{}
		all[name] = s
		fmt.Fprintf(&s.text, "# The inputs of %s in an exploration.\nconfig small key=%s%s\n", name, p.key, word(" unranked", !p.cfg.Ranked))
	}
	// The candidate of a scenario is a, so the names of a and p are exchanged.
	names := strings.NewReplacer(p.id, "a", "pod-a", strings.TrimPrefix(p.id, "pod-"), "pod-", "")
	fmt.Fprintf(&s.text, "%.3f %s\n", p.w.now.since(began).Seconds(), names.Replace(s.input(in)))
	if a.Op > core.Read {
		s.last, s.annotations = a.Record, a.Annotations
	}
}

func (s *scenario) input(in core.Input) string {
	switch in.Kind {
	case core.Replied:
		if in.Result == core.OK {
			return "ok" + s.lock(in.Snap)
		}
		return in.Result.String()
	case core.Seen:
		return "seen" + s.lock(in.Snap)
	case core.DefaultChanged:
		return "default " + in.Default.Revision
	case core.Watching:
		return "watching" + word(" gap", in.Gap)
	case core.Fitness:
		return word("un", in.Unfit) + "fit"
	case core.Tick, core.Unwatched, core.Drained, core.StepDown, core.Stop, core.Coordinator, core.Bar:
	}
	return in.Kind.String()
}

// lock formats a lock.
func (s *scenario) lock(snap core.Snapshot) string {
	r, n := snap.Record, snap.Annotations
	text := fmt.Sprintf(" @%d", snap.Version)
	switch {
	case !snap.Exists:
		return text + " absent"
	case snap.Content == record.Unreadable:
		return text + fmt.Sprintf(" unreadable trans=%d", r.Transitions)
	case r == s.last:
		text += " written" + word(" unmarked", n.Marker == core.Marker{})
	case r.Holder == "":
		text += fmt.Sprintf(" free trans=%d", r.Transitions)
	default:
		text += fmt.Sprintf(" %s/%d %s lease=%v", r.Holder, r.Transitions, r.Key, r.Lease)
	}
	if r != s.last {
		text += fmt.Sprintf(" stamp=%d", int64(r.Renewed)-int64(began)/int64(time.Microsecond))
	}
	if n.Nominated != (core.Nomination{}) && n != s.annotations {
		text += fmt.Sprintf(" nominated=%s/%d%s", n.Nominated.Identity, n.Nominated.Transitions, word(" renewed", r.Renewed != r.Acquired))
	}
	if m := n.Marker; m.Identity != "" {
		text += fmt.Sprintf(" marker=%s/%d%s%s%s", m.Identity, m.Transitions, word("+handover", m.Handover), word("+unfit", m.Unfit), word("+uncoordinated", m.Uncoordinated))
	}
	if q := n.Request; q != (core.Request{}) {
		text += fmt.Sprintf(" request=%s:%s:%s/%d%s%s%s+%ds+hold=%ds", q.Identity, q.Key, q.Holder, q.Transitions,
			word("+operator", q.Reason == record.ForOperator), word("+accepted", q.Accepted), word("+refused", q.Refused != ""), q.Seconds, q.HoldSeconds)
	}
	if h := n.Hold; h != (core.Hold{}) {
		text += fmt.Sprintf(" hold=%s/%d:%ds%s", h.Holder, h.Transitions, h.Seconds, word("+transfer", h.Reason == record.HoldForTransfer))
	}
	return text + " uid=" + snap.UID + word(" strategy", snap.Strategy) + word(" preferred="+snap.Preferred, snap.Preferred != "")
}

func word(w string, so bool) string {
	if so {
		return w
	}
	return ""
}
