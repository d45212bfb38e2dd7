package leaderelection

// moves are the possible moves, with their relative frequency.
var moves = []struct {
	weight int
	do     func(*world)
}{
	{2, (*world).Crash},
	{2, (*world).Replace},
	{2, (*world).Flip},
	{1, (*world).CutOff},
	{1, (*world).EndWatches},
	{3, (*world).Refuse},
	{3, (*world).Order},
	{1, (*world).Edit},
	{1, (*world).Note},
	{1, (*world).Fitness},
	{1, (*world).Rewind},
}

// makeMove makes a random move.
func makeMove(w *world) {
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
