package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// order is an order to a child process, one JSON object per line. The child responds with a sample.
type order struct {
	// Begin sets the library of the process. It comes first.
	Begin *begin `json:"begin,omitempty"`
	// Enter starts candidates.
	Enter *enter `json:"enter,omitempty"`
	// Collect runs the garbage collector before the sample.
	Collect bool `json:"collect,omitempty"`
}

type begin struct {
	Library    electors.Library
	Kubeconfig string
}

// enter starts Elections candidates, one per election, spread over a period.
type enter struct {
	Spec      electors.Spec
	Elections int
	Over      time.Duration
}

// sample is the state of a child process.
type sample struct {
	At         time.Time
	Error      string         `json:",omitempty"`
	Counts     map[string]int // requests so far
	CPU        float64        // seconds so far
	Heap       uint64         // bytes in use
	Stack      uint64
	Goroutines int
	PID        int
	Live       int         // candidates that lead
	Began      []time.Time // of the terms of these candidates
	Spans      int         // terms so far
}

// serve follows orders until the input ends.
func serve() error {
	var c childProcess
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil // candidates end with the process, as in a crash
		} else if err != nil {
			return err
		}
		answer := sample{}
		if err := c.follow(o); err != nil {
			answer.Error = err.Error()
		} else {
			answer = c.sample(o.Collect)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

type childProcess struct {
	process    *electors.Process
	candidates []*electors.Candidate
}

func (c *childProcess) follow(o order) error {
	if o.Begin != nil {
		config, err := clientcmd.BuildConfigFromFlags("", o.Begin.Kubeconfig)
		if err != nil {
			return err
		}
		if c.process, err = electors.NewProcess(o.Begin.Library, config, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
	}
	if o.Enter != nil {
		return c.enter(*o.Enter)
	}
	return nil
}

func (c *childProcess) enter(e enter) error {
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

func (c *childProcess) sample(collect bool) sample {
	if collect {
		// Twice, because of finalizers. Then release pooled memory and stacks.
		runtime.GC()
		runtime.GC()
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := sample{
		At: time.Now(), CPU: ownCPU(), Heap: m.HeapAlloc, Stack: m.StackInuse, Goroutines: runtime.NumGoroutine(),
		Counts: c.process.Wire.Counts(), PID: os.Getpid(),
	}
	for _, candidate := range c.candidates {
		if candidate.Live() {
			s.Live++
			s.Began = append(s.Began, candidate.Last().From)
		}
		s.Spans += len(candidate.Spans())
	}
	return s
}

// child is a process of candidates.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	orders *json.Encoder
}

// newChild starts this program as a process of candidates, with a parent as its witness on request.
func (l *lab) newChild(library electors.Library, kubeconfig string, witness bool) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(l.ctx, self, "-child", fmt.Sprintf("-witness=%t", witness))}
	c.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if !witness { // it logs each release
		c.cmd.Stderr = os.Stderr
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out, c.orders = json.NewDecoder(bufio.NewReader(out)), json.NewEncoder(c.in)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start child process: %w", err)
	}
	if _, err := c.tell(order{Begin: &begin{Library: library, Kubeconfig: kubeconfig}}); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// tell sends an order and returns the response.
func (c *child) tell(o order) (sample, error) {
	var s sample
	if err := c.orders.Encode(o); err != nil {
		return s, fmt.Errorf("send order to child process: %w", err)
	}
	if err := c.out.Decode(&s); err != nil {
		return s, fmt.Errorf("read response of child process: %w", err)
	}
	if s.Error != "" {
		return s, errors.New(s.Error)
	}
	return s, nil
}

// end kills the process.
func (c *child) end() {
	_ = c.cmd.Process.Kill()
	c.cleanUp()
}

// cleanUp waits for the end of a process that is killed. Its parent first releases its locks.
func (c *child) cleanUp() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}
