package apirequest

import "context"

// Signal wakes the goroutine that receives from it. Several calls of Send before it receives count as one.
type Signal chan struct{}

// NewSignal returns a Signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // the receiver will wake anyway
	}
}

// Around is a run function that sends the signal when a term begins and when it ends.
func (s Signal) Around(ctx context.Context) error {
	s.Send()
	<-ctx.Done()
	s.Send()
	return nil
}
