package simulation

import "time"

// Mode has the faults that can occur in a run. Counts are maximums, the other numbers are probabilities.
type Mode struct {
	Name   string
	Ranked bool // keys are revisions, and one is the default

	Crowd int // additional nodes, so that many candidates react to each event

	Flips   int // changes of the default revision
	Edits   int // by a user: deleted, emptied, corrupted, overwritten
	Labels  int // edits of other metadata
	Pauses  int // SIGSTOP and suspend
	Clocks  int // the wall clock jumps or stops
	Stops   int // stops, kills and starts of processes
	Outages int // the store is unreachable for all or for one node
	Cuts    int // broken watches

	Refusals int     // spells: one kind of call fails
	Barred   float64 // a node may send requests but its writes as holder are rejected
	Forgers  int     // annotations written by a user with patch rights on the lock

	Net       float64 // a call is slow; half of these are lost
	Drop      float64 // a watch event is lost
	Late      float64 // a watch event is late
	Slow      bool    // the API server answers late
	Deaths    int     // dead connections
	Lag       float64 // the watch of a process is always late by more than a RetryPeriod
	Forbidden float64 // a process may not watch
	Fail      float64 // a run function fails in a term
	LateStart float64 // a node starts later

	Strangers int // records with any lease by a user with update rights, replaced later

	Orders int // operator commands
	Unfits int // unfit processes

	Ambush float64 // a step of a handover is followed by a fault
	Meddle bool    // ambushes may change the lock
	Remote float64 // a node is remote
	Blind  float64 // a process never learns the default revision

	Witness    float64 // a node has a witness
	Losses     int     // lost connections to a witness
	Duplicates int     // second processes with the name of a live one
	// External uses a KeyComparisonFunc instead of ranks. In some runs it lets equal keys preempt each other.
	External bool

	OneCycle bool // a lost term ends the process

	Coordinated   bool
	Wishes        int     // changes of the preferred candidate
	Silences      int     // times without a coordinator
	Removed       bool    // there is no coordinator
	WrongClock    float64 // a coordinator treats a live holder as expired
	Uncoordinated float64 // the processes of a node are not coordinated

	Held    float64 // a node campaigns for a second lock inside its terms
	NewOnly int     // nodes that use only the second lock

	Peers    float64 // a node runs another elector
	ClientGo bool    // a client-go elector instead of istiod
	Convert  float64 // an ended process is replaced by one of the other kind
	Inherit  float64 // a killed process is replaced by one of the other kind with the same name

	OtherLeases float64 // a node runs another elector with another lease
}

// Modes lists the modes that seeds select.
var Modes = []Mode{
	{Name: "orderly", Stops: 6, Labels: 4, LateStart: 0.2},
	{Name: "upgrade", Ranked: true, Flips: 4, Stops: 4, Labels: 2, LateStart: 0.3},
	{Name: "network", Outages: 4, Cuts: 6, Net: 0.15, Drop: 0.1, Late: 0.15, Forbidden: 0.2, Labels: 4, Stops: 2},
	{Name: "ranked", Ranked: true, Flips: 6, Outages: 2, Cuts: 4, Net: 0.08, Drop: 0.08, Late: 0.1, Forbidden: 0.15, Stops: 4, Fail: 0.1},
	{Name: "edits", Edits: 7, Labels: 6, Cuts: 3, Net: 0.05, Drop: 0.05, Late: 0.1, Forbidden: 0.1, Stops: 2},
	{Name: "pauses", Pauses: 8, Clocks: 4, Net: 0.05, Late: 0.05, Stops: 2, Forbidden: 0.1},
	{Name: "restarts", Ranked: true, Flips: 2, Stops: 14, Net: 0.05, Drop: 0.03, Late: 0.05, Fail: 0.3, LateStart: 0.4, Forbidden: 0.1},
	{
		Name: "chaos", Ranked: true, Flips: 4, Edits: 4, Labels: 4, Pauses: 4, Clocks: 3, Stops: 6,
		Outages: 3, Cuts: 5, Net: 0.12, Drop: 0.1, Late: 0.12, Forbidden: 0.2, Fail: 0.15, LateStart: 0.3,
	},
	{Name: "handover", Ranked: true, Remote: 0.4, Flips: 10, Stops: 4, Labels: 3, Ambush: 0.4, Blind: 0.1},
	{
		Name: "handover-bad", Ranked: true, Remote: 0.3, Flips: 10, Stops: 4, Labels: 3, Ambush: 0.4, Meddle: true, Blind: 0.1,
		Pauses: 2, Cuts: 3, Net: 0.08, Drop: 0.08, Late: 0.1, Forbidden: 0.2, Fail: 0.1,
	},
	{Name: "operator", Ranked: true, Remote: 0.2, Flips: 5, Stops: 3, Orders: 10, Unfits: 4, Labels: 2},
	{
		Name: "operator-bad", Ranked: true, Remote: 0.2, Flips: 6, Stops: 4, Orders: 8, Unfits: 6, Ambush: 0.2, Meddle: true, Blind: 0.1,
		Peers: 0.2, Cuts: 3, Outages: 1, Net: 0.06, Drop: 0.06, Late: 0.08, Forbidden: 0.15, Fail: 0.1,
	},
	{Name: "unranked-orders", Flips: 0, Stops: 3, Orders: 8, Unfits: 6, Ambush: 0.1, Net: 0.02},
	{Name: "external", External: true, Flips: 0, Stops: 8, Edits: 1, Cuts: 3, Net: 0.06, Drop: 0.05, Late: 0.08, Forbidden: 0.15, Fail: 0.1, LateStart: 0.4},
	{Name: "one-cycle", OneCycle: true, Ranked: true, Flips: 4, Stops: 6, Pauses: 2, Outages: 2, Cuts: 2, Net: 0.05, Drop: 0.04, Late: 0.05, Fail: 0.2},
	{Name: "duplicates", Ranked: true, Duplicates: 4, Flips: 4, Stops: 3, Labels: 2, Ambush: 0.1, Net: 0.03, Late: 0.05},
	{Name: "mixed", Ranked: true, Remote: 0.2, Ambush: 0.2, Peers: 0.5, Convert: 0.5, Flips: 5, Stops: 8, Labels: 2, LateStart: 0.3},
	{
		Name: "mixed-bad", Ranked: true, Remote: 0.2, Ambush: 0.2, Peers: 0.5, Convert: 0.3, Flips: 5, Stops: 6, Edits: 2, Pauses: 3, Outages: 2, Cuts: 3,
		Net: 0.08, Drop: 0.08, Late: 0.1, Forbidden: 0.15, Fail: 0.1, LateStart: 0.3,
	},
	{Name: "namesake", Ranked: true, Peers: 0.3, Inherit: 0.8, Flips: 5, Stops: 8, Labels: 2, LateStart: 0.2},
	{Name: "refused", Ranked: true, Refusals: 4, Flips: 1, Stops: 1},
	{Name: "one-sided", Ranked: true, Refusals: 6, Flips: 3, Stops: 3, Labels: 4, Cuts: 3, Forbidden: 0.2, Lag: 0.1},
	{Name: "refused-bad", Ranked: true, Refusals: 4, Flips: 4, Stops: 4, Edits: 2, Outages: 1, Net: 0.05, Drop: 0.05, Late: 0.05, Forbidden: 0.2, Fail: 0.1, Orders: 2},
	{Name: "lagging", Ranked: true, Flips: 3, Lag: 0.5, Remote: 0.2},
	{Name: "client-go", Peers: 0.5, ClientGo: true, Convert: 0.3, Stops: 6, Pauses: 3, Outages: 2, Cuts: 2, Net: 0.06, Late: 0.08, Forbidden: 0.15, LateStart: 0.3},
	{Name: "coordinated", Coordinated: true, Ranked: true, Flips: 4, Wishes: 4, Stops: 6, Labels: 2, LateStart: 0.2},
	{Name: "coordinator-gone", Coordinated: true, Ranked: true, Silences: 2, Flips: 3, Stops: 4},
	{Name: "coordinator-removed", Coordinated: true, Removed: true, Ranked: true, Flips: 4, Stops: 4, Labels: 2},
	{
		Name: "coordinated-bad", Coordinated: true, Ranked: true, WrongClock: 0.5, Silences: 2, Flips: 3, Wishes: 5, Stops: 5, Labels: 2, Unfits: 3, Orders: 3,
		Pauses: 3, Outages: 2, Cuts: 3, Net: 0.06, Lag: 0.1, Forbidden: 0.15, Fail: 0.1, LateStart: 0.2,
	},
	{Name: "annotations", Ranked: true, Remote: 0.2, Forgers: 12, Flips: 2, Stops: 3},
	{
		Name: "annotations-bad", Ranked: true, Remote: 0.2, Forgers: 12, Flips: 4, Stops: 5, Unfits: 2, Orders: 3, Ambush: 0.4, Pauses: 2, Cuts: 3, Outages: 1,
		Net: 0.05, Drop: 0.05, Late: 0.08, Forbidden: 0.15, Fail: 0.1,
	},
	{Name: "annotations-coordinated", Coordinated: true, Ranked: true, Uncoordinated: 0.1, Forgers: 10, Silences: 1, Wishes: 2, Flips: 2, Stops: 4},
	{Name: "strangers", Ranked: true, Strangers: 4, OtherLeases: 0.3, Flips: 2, Stops: 6},
	{Name: "barred", Ranked: true, Barred: 0.4, Flips: 2, Stops: 2},
	{Name: "barred-bad", Ranked: true, Barred: 0.4, Remote: 0.2, Flips: 3, Stops: 3, Forgers: 4, Cuts: 3, Net: 0.05, Drop: 0.05, Late: 0.08, Forbidden: 0.15},
	{Name: "coordinated-mixed", Coordinated: true, Uncoordinated: 0.4, WrongClock: 0.2, Silences: 1, Wishes: 5, Stops: 5, Cuts: 2, Pauses: 2, Net: 0.04, Forbidden: 0.1},
	{
		Name: "witness", Ranked: true, Witness: 0.8, Losses: 3, Flips: 3, Stops: 16, Edits: 3, Pauses: 2, Orders: 1, Cuts: 2,
		Net: 0.05, Late: 0.05, Forbidden: 0.1, LateStart: 0.3,
	},
	{Name: "held", Ranked: true, Held: 0.7, Peers: 0.3, Flips: 4, Stops: 10, Unfits: 4, Labels: 2, LateStart: 0.3},
	{
		Name: "held-bad", Ranked: true, Held: 0.7, Peers: 0.2, Flips: 4, Stops: 8, Edits: 2, Pauses: 3, Outages: 3, Cuts: 3,
		Net: 0.06, Drop: 0.05, Late: 0.08, Forbidden: 0.1, Fail: 0.1, LateStart: 0.3,
	},
	{
		Name: "held-new", Ranked: true, Held: 1, NewOnly: 2, Flips: 4, Stops: 10, Unfits: 4, Pauses: 3, Outages: 3, Cuts: 3,
		Net: 0.06, Drop: 0.05, Late: 0.08, Forbidden: 0.1, Fail: 0.1, LateStart: 0.3,
	},
	{Name: "slow", Slow: true, Stops: 6, LateStart: 0.2},
	{Name: "slow-dead", Slow: true, Deaths: 12, Forbidden: 0.3, Stops: 4, LateStart: 0.2},
	{
		Name: "slow-bad", Slow: true, Deaths: 6, Ranked: true, Remote: 0.2, Flips: 3, Stops: 6, Edits: 2, Pauses: 2, Outages: 1, Cuts: 3, Orders: 1,
		Net: 0.06, Drop: 0.05, Late: 0.06, Forbidden: 0.15, Fail: 0.1, LateStart: 0.3,
	},
	{Name: "herd", Ranked: true, Crowd: 40, Flips: 4, Stops: 80},
	{Name: "witness-mixed", Ranked: true, Witness: 0.7, Peers: 0.3, Flips: 3, Stops: 12, Labels: 2, LateStart: 0.2},
}

// mild reports whether the only faults are ends and starts of processes.
func (m Mode) mild() bool {
	hard := m.Edits + m.Pauses + m.Clocks + m.Outages + m.Cuts + m.Orders + m.Unfits + m.Refusals
	return hard == 0 && m.WrongClock == 0 && !m.Slow && m.Barred+m.Lag+m.Net+m.Drop+m.Late+m.Forbidden+m.Fail+m.Peers+m.Ambush+m.Blind == 0
}

// uncoordinatedTime returns the additional time without a leader while no coordinator acts.
func (m Mode) uncoordinatedTime(t timing) time.Duration {
	if m.Silences == 0 && !m.Removed {
		return 0
	}
	return 4 * t.lease * 105 / 100
}

// peers reports whether other electors take part.
func (m Mode) peers() bool { return m.Peers+m.OtherLeases > 0 }

func (w *world) peerKind() *peerKind {
	if w.mode.OtherLeases > 0 {
		return otherLeases[w.rng.IntN(len(otherLeases))]
	}
	if w.mode.ClientGo {
		return clientGo
	}
	return istiod
}

// ModeNamed returns the mode of that name.
func ModeNamed(name string) (Mode, bool) {
	for _, m := range Modes {
		if m.Name == name {
			return m, true
		}
	}
	return Mode{}, false
}
