package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/tests/cluster/node"
)

func TestParseLine(t *testing.T) {
	got, ok := parseLine([]byte("2026-01-02T12:00:01.500000Z\tinfo\tpilot\trun function started\telection=e revision=x"))
	want := logLine{at: at(1.5), message: "run function started", election: "e"}
	if !ok || !got.at.Equal(want.at) || got.message != want.message || got.election != want.election {
		t.Errorf("parsed %+v, %v; want %+v", got, ok, want)
	}
	for _, line := range []string{"", "panic: oh", "a\tb\tc\td\te", "goroutine 1 [running]:\t\t\t\t"} {
		if got, ok := parseLine([]byte(line)); ok {
			t.Errorf("%q was parsed as %+v", line, got)
		}
	}
}

// stagehand plays a node with one pod.
type stagehand struct {
	*processes
	t    *testing.T
	pods []node.Pod
}

func newStagehand(t *testing.T) *stagehand {
	h := &stagehand{t: t, pods: []node.Pod{{
		Name: "a", UID: types.UID("uid-a"), PID: 1, Log: filepath.Join(t.TempDir(), "log"),
	}}}
	h.processes = &processes{journal: &journal{}, byUID: map[types.UID]*podProcess{}, pods: func() []node.Pod { return h.pods }}
	t.Cleanup(h.close)
	return h
}

func (h *stagehand) log(second float64, message, labels string) {
	h.t.Helper()
	file, err := os.OpenFile(h.pods[0].Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	stamp := at(second).UTC().Format("2006-01-02T15:04:05.000000Z")
	if _, err := fmt.Fprintf(file, "%s\tinfo\tpilot\t%s\t%s\n", stamp, message, labels); err != nil {
		h.t.Fatal(err)
	}
}

func (h *stagehand) look(second float64) {
	h.t.Helper()
	if err := h.processes.look(at(second)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *stagehand) expect(want ...span) {
	h.t.Helper()
	got := h.journal.all()
	if !slices.EqualFunc(got, want, func(a, b span) bool {
		return a.election == b.election && a.pod == b.pod && a.from.Equal(b.from) && a.to.Equal(b.to)
	}) {
		h.t.Errorf("spans %v, want %v", got, want)
	}
}

const workBegan = "run function started"

func TestCastHearsOfWork(t *testing.T) {
	h := newStagehand(t)
	h.look(0)
	h.log(1, "server", "identity=a")
	h.log(2, workBegan, "election=e")
	h.look(3)
	h.expect(spanOf("a", 2, alive))
	h.log(4, "run function ended", "election=e")
	h.log(5, workBegan, "election=e")
	h.look(6)
	h.expect(spanOf("a", 2, 4), spanOf("a", 5, alive))
}

func TestCastEndsTheWorkOfTheDead(t *testing.T) {
	t.Run("no process", func(t *testing.T) {
		h := newStagehand(t)
		h.log(2, workBegan, "election=e")
		h.look(3)
		h.pods[0].PID = 0
		h.look(4)
		h.expect(spanOf("a", 2, 4))
	})
	t.Run("dead before it was seen to work", func(t *testing.T) {
		h := newStagehand(t)
		h.look(1)
		h.log(2, workBegan, "election=e")
		h.pods[0].PID = 0
		h.look(4)
		h.expect(spanOf("a", 2, 4))
	})
	t.Run("the next process works already", func(t *testing.T) {
		h := newStagehand(t)
		h.log(2, workBegan, "election=e")
		h.look(3)
		h.log(4, "server", "identity=a")
		h.log(5, workBegan, "election=e")
		h.pods[0].PID = 2
		h.look(6)
		h.expect(spanOf("a", 2, 4), spanOf("a", 5, alive))
	})
	t.Run("no pod", func(t *testing.T) {
		h := newStagehand(t)
		h.look(1)
		h.log(2, workBegan, "election=e")
		h.processes.pods = func() []node.Pod { return nil }
		h.look(4)
		h.expect(spanOf("a", 2, 4))
	})
	t.Run("is told", func(t *testing.T) {
		h := newStagehand(t)
		var dead []time.Time
		h.died = func(_ string, at time.Time) { dead = append(dead, at) }
		h.look(1)
		h.pods[0].PID = 0
		h.look(2)
		h.look(3)
		if len(dead) != 1 || !dead[0].Equal(at(2)) {
			t.Errorf("told of deaths at %v, want one at %v", dead, at(2))
		}
	})
}
