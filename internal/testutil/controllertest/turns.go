package controllertest

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// CheckTurns checks that a namespace with many objects, each of which needs writes, does not delay the write for an object of another
// namespace. put creates such an object.
func CheckTurns(t *testing.T, create func(*testing.T) (Controller, *Stub), put func(s *Stub, namespace, name string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const turn = 10 // writes of the workers
		c, s := create(t)
		s.Answer(func() error {
			<-time.After(time.Second)
			return nil
		})
		for i := range 100 {
			put(s, "many", fmt.Sprint("o", i))
		}
		Run(t, c, func() {
			<-time.After(5 * time.Second)
			before := len(s.Writes())
			put(s, "few", "one")
			<-time.After(5 * time.Second)
			synctest.Wait()
			writes := s.Writes()
			at := slices.IndexFunc(writes, func(w Write) bool { return w.Namespace == "few" })
			if before < turn || at < before || at > before+turn {
				t.Errorf("the first write for the other namespace is number %d, after %d writes before its object", at, before)
			}
			if writes[len(writes)-1].Namespace != "many" {
				t.Error("the namespace with many objects has no writes left")
			}
		})
	})
}
