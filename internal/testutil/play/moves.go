package play

// World is processes, their locks and what is between them, and does one thing to them at a time.
type World interface {
	Intn(n int) int
	// Crash ends a process without a word; it may come back under its name.
	Crash()
	// Replace stops a process in order and starts another, as a rollout does.
	Replace()
	// Flip changes the default revision.
	Flip()
	// CutOff takes a process's connections away for a while.
	CutOff()
	// EndWatches does to a process's watches what API servers and networks do.
	EndWatches()
	// Refuse has some kinds of request refused for a while.
	Refuse()
	// Order gives an operator's order.
	Order()
	// Edit changes a lock object by hand, or deletes it.
	Edit()
	// Note writes something beside the record that is not for electors.
	Note()
	// Fitness changes whether a process wants to lead.
	Fitness()
	// Rewind keeps the state of the locks, or puts an earlier one back.
	Rewind()
}

// moves are by how often each is made.
var moves = []struct {
	weight int
	do     func(World)
}{
	{2, World.Crash},
	{2, World.Replace},
	{2, World.Flip},
	{1, World.CutOff},
	{1, World.EndWatches},
	{3, World.Refuse},
	{3, World.Order},
	{1, World.Edit},
	{1, World.Note},
	{1, World.Fitness},
	{1, World.Rewind},
}

// Move makes one of them.
func Move(w World) {
	sum := 0
	for _, m := range moves {
		sum += m.weight
	}
	n := w.Intn(sum)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			m.do(w)
			return
		}
	}
}
