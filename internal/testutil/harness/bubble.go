package harness

import (
	"testing/synctest"
	"time"
)

// Pass lets time pass in a bubble of synctest, until all other goroutines wait.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
