package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// Child is the service of a child process.
type Child struct {
	process    *electors.Process
	candidates []*electors.Candidate
}

// Candidates are candidates to start, one per election, spread over a period.
type Candidates struct {
	Spec      electors.Spec
	Elections int
	Over      time.Duration
}

// Sample is the state of a child process.
type Sample struct {
	At         time.Time
	Counts     map[string]int // requests so far
	Conflicts  int            // of these, rejected because of another version
	CPU        float64        // seconds so far
	Heap       uint64         // bytes in use
	Stack      uint64
	Goroutines int
	PID        int
	Live       int         // candidates that lead
	Began      []time.Time // of the terms of these candidates
	Spans      int         // terms so far
}

// serve serves requests until the input ends. Then candidates end with the process, as in a crash.
func serve(library electors.Library, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	process, err := electors.NewProcess(library, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := rpc.Register(&Child{process: process}); err != nil {
		return err
	}
	rpc.ServeConn(pipe{os.Stdin, os.Stdout})
	return nil
}

// pipe is a connection of two files.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// Enter starts candidates.
func (c *Child) Enter(e Candidates, _ *bool) error {
	ctx := context.Background()
	began := time.Now()
	for i := range e.Elections {
		spec := e.Spec
		spec.Election = fmt.Sprintf("%s-%d", spec.Election, i)
		candidate, err := c.process.Candidate(spec)
		if err != nil {
			return err
		}
		due := began.Add(e.Over * time.Duration(i) / time.Duration(e.Elections))
		<-time.After(time.Until(due))
		candidate.Start(ctx)
		c.candidates = append(c.candidates, candidate)
	}
	return nil
}

// Replace stops the leader of an election, if it is in this process, and starts a new candidate. It returns when the run
// function returned.
func (c *Child) Replace(election string, to *time.Time) error {
	for i, leader := range c.candidates {
		if leader.Election != election || !leader.Live() {
			continue
		}
		leader.Stop()
		*to = leader.Last().To
		spec := leader.Spec
		spec.Identity += "+"
		next, err := c.process.Candidate(spec)
		if err != nil {
			return err
		}
		next.Start(context.Background())
		c.candidates[i] = next
		return nil
	}
	return nil
}

// Sample measures the process. It first runs the garbage collector on request.
func (c *Child) Sample(collect bool, s *Sample) error {
	if collect {
		// Twice, because of finalizers. Then release pooled memory and stacks.
		runtime.GC()
		runtime.GC()
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*s = Sample{
		At: time.Now(), CPU: ownCPU(), Heap: m.HeapAlloc, Stack: m.StackInuse, Goroutines: runtime.NumGoroutine(),
		Counts: c.process.Counts(), Conflicts: c.process.Conflicts(), PID: os.Getpid(),
	}
	for _, candidate := range c.candidates {
		if candidate.Live() {
			s.Live++
			s.Began = append(s.Began, candidate.Last().From)
		}
		s.Spans += len(candidate.Spans())
	}
	return nil
}

// child is a process of candidates.
type child struct {
	*rpc.Client
	cmd *exec.Cmd
}

// newChild starts this program as a process of candidates, with a parent as its witness on request.
func (l *lab) newChild(library electors.Library, kubeconfig string, witness bool) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(l.ctx, self, "-child", strconv.Itoa(int(library)), fmt.Sprintf("-witness=%t", witness))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if !witness { // it logs each release
		cmd.Stderr = os.Stderr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start child process: %w", err)
	}
	return &child{rpc.NewClient(pipe{out, in}), cmd}, nil
}

func (c *child) enter(candidates Candidates) error {
	return c.Call("Child.Enter", candidates, new(bool))
}

// replace returns the zero time if the process does not lead the election.
func (c *child) replace(election string) (to time.Time, err error) {
	err = c.Call("Child.Replace", election, &to)
	return to, err
}

func (c *child) sample(collect bool) (Sample, error) {
	var s Sample
	err := c.Call("Child.Sample", collect, &s)
	return s, err
}

// newChildren starts n processes of candidates without a witness.
func (l *lab) newChildren(library electors.Library, n int) (all []*child, _ error) {
	for range n {
		c, err := l.newChild(library, l.cluster.Kubeconfig(), false)
		if err != nil {
			end(all)
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func end(children []*child) {
	for _, c := range children {
		c.end()
	}
}

// end kills the process.
func (c *child) end() {
	_ = c.cmd.Process.Kill()
	c.cleanUp()
}

// cleanUp waits for the end of a process that is killed. Its parent first releases its locks.
func (c *child) cleanUp() {
	_ = c.Close()
	_ = c.cmd.Wait()
}
