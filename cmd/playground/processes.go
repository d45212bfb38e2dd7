package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/tests/cluster/node"
)

// lookInterval is how often logs and processes are looked at. It delays what is
// learnt, not the times in the logs.
const lookInterval = 20 * time.Millisecond

// processes follows the pods' processes: what they say, and when they are gone.
type processes struct {
	pods    func() []node.Pod
	journal *journal
	byUID   map[types.UID]*podProcess
	// died hears of each process that is gone; nil: nobody does.
	died func(pod string, at time.Time)
}

// podProcess is one pod.
type podProcess struct {
	name string
	log  *logFile
	// pid is 0 while the pod has no process; alive is when that was last so.
	pid   int
	alive time.Time
}

// run looks until ctx ends.
func (c *processes) run(ctx context.Context) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	defer c.close()
	for {
		if err := c.look(time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (c *processes) close() {
	for _, p := range c.byUID {
		p.log.close()
	}
}

// look learns what is new. The processes are listed before the logs are read, so that
// a process that is gone has said all.
func (c *processes) look(now time.Time) error {
	here := map[types.UID]bool{}
	for _, pod := range c.pods() {
		here[pod.UID] = true
		p := c.byUID[pod.UID]
		if p == nil {
			p = &podProcess{name: pod.Name, log: &logFile{name: pod.Log}}
			c.byUID[pod.UID] = p
		}
		if err := c.meet(p, pod.PID, now); err != nil {
			return err
		}
	}
	for uid, p := range c.byUID {
		if here[uid] {
			continue
		}
		delete(c.byUID, uid)
		if err := errors.Join(c.meet(p, 0, now), p.log.close()); err != nil {
			return err
		}
	}
	return nil
}

// meet takes in what a pod's processes have said, and which one it has now.
func (c *processes) meet(p *podProcess, pid int, now time.Time) error {
	if err := p.log.grown(func(line []byte) { c.hear(p, line) }); err != nil {
		return fmt.Errorf("following pod %s: %w", p.name, err)
	}
	if p.pid != 0 && p.pid != pid {
		alive := now
		if pid != 0 {
			alive = p.alive // what began since may be the next process' work
		}
		c.journal.died(p.name, alive, now)
		if c.died != nil {
			c.died(p.name, now)
		}
	}
	p.pid, p.alive = pid, now
	return nil
}

func (c *processes) hear(p *podProcess, line []byte) {
	said, ok := parseLine(line)
	if !ok {
		return
	}
	switch said.message {
	case saidServer:
		// The process before was gone.
		c.journal.died(p.name, said.at, said.at)
	case saidBegan:
		c.journal.began(p.name, said.election, said.at)
	case saidEnded:
		c.journal.ended(p.name, said.election, said.at)
	case saidPhase, saidInOrder:
	default:
		return
	}
	c.journal.note(p.name, said)
}
