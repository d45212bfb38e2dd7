package bootstrap

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/debug"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// electionsPage is what people look at, on a listener of its own: nobody scrapes it, and it is not for everybody.
type electionsPage struct {
	sites   []*site
	page    *debug.Page
	http    *httpServer
	changed chan struct{}
	ended   chan error // of page.Run
}

// pageStop is how long the page may take to end beyond its listener: its streams end at once.
const pageStop = httpStop + stopGrace

func newElectionsPage(config Config, sites []*site) (*electionsPage, error) {
	p := &electionsPage{sites: sites, changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	var err error
	p.page, err = debug.New(debug.Config{Source: p.state, Changed: p.changed, Address: config.DebugAddress, Log: config.Logger})
	if err != nil {
		return nil, fmt.Errorf("--debug-address: %w", err)
	}
	p.http = newHTTPServer("--debug-address", config.DebugAddress, p.page.Handler(), config.Logger)
	for _, at := range sites {
		at.metrics.changed = p.wake
		if at.candidates != nil {
			at.candidates.changed = p.wake
		}
	}
	return p, nil
}

// wake says that there may be something new to show.
func (p *electionsPage) wake() {
	select {
	case p.changed <- struct{}{}:
	default: // it is going to look
	}
}

// part is the page as a part of the server. Where it cannot listen the server goes without: two replicas on one
// machine's network are no reason for one of them not to elect.
func (s *Server) pagePart() part {
	return part{name: "the elections page", bound: pageStop, run: func(ctx context.Context) error {
		if err := s.page.http.listen(); err != nil {
			s.log.Error("no elections page", "err", err)
			<-ctx.Done()
			return nil
		}
		s.log.Info("elections page", "url", "http://"+s.page.http.address()+debug.Path)
		return s.page.run(ctx)
	}}
}

// run serves until ctx ends. The page ends first: its streams would keep the listener waiting.
func (p *electionsPage) run(ctx context.Context) error {
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	pageCtx, blind := context.WithCancel(ctx)
	defer blind()
	served := make(chan error, 1)
	go func() { served <- p.http.serve(serveCtx) }()
	go func() { p.ended <- p.page.Run(pageCtx) }()
	var recalling sync.WaitGroup
	defer recalling.Wait()
	recalling.Go(func() { p.recall(pageCtx) })
	select {
	case err := <-served: // the listener is broken
		stop()
		blind()
		<-p.ended
		return err
	case err := <-p.ended:
		blind()
		stop()
		<-served
		return err
	}
}

// state is what the page shows now.
func (p *electionsPage) state() debug.State {
	home := p.sites[0]
	s := debug.State{Identity: home.config.Identity, Revision: home.config.Revision, Version: ReadBuild().Version}
	for _, at := range p.sites {
		known := at.candidates.at(time.Now())
		for _, le := range at.mine {
			now := le.Status()
			if at == home && now.DefaultKnown {
				s.Default = k8sleaderelection.DefaultRevision{Revision: now.Default, Synced: true}
			}
			e := shownElection(now)
			if at.addGuards(&e, le); known != nil {
				e.Candidates = append([]inspect.Candidate{}, known[now.Lock]...)
			}
			s.Elections = append(s.Elections, e)
		}
	}
	return s
}

// shownElection is an election as the page takes it.
func shownElection(now leaderelection.Status) debug.Election {
	e := debug.Election{
		ID: now.ElectionID, Namespace: now.Namespace, Lock: now.Lock, Kind: kindOf(now.LockType),
		Leader: now.Holder, Key: now.HolderKey, Acting: now.Acting, Strategy: now.Strategy, HandsOver: now.HandsOver, Ranked: now.Ranked,
		LeaseSeconds: int(now.LeaseDuration / time.Second), Transitions: now.Transitions, Token: now.Token,
		Phase: now.Phase, Reason: now.Reason, Since: now.Since, Leading: now.Leading, CoverLeft: now.CoverLeft, Cover: now.Cover,
	}
	if e.Strategy != "" {
		e.Leader = inspect.Pod(e.Leader, now.Lock)
	}
	if h := now.Hold; h.Seconds > 0 {
		e.Hold = &inspect.Hold{Reason: h.Reason, Requester: h.Requester, Note: h.Note, Seconds: h.Seconds}
	}
	if now.Phase == "disabled" { // whoever runs works, and there is no lock
		e.Leader, e.Key, e.Acting = now.Identity, now.Key, now.Leading
	}
	return e
}

// kindOf is a lock's kind as objects have it.
func kindOf(lockType string) string {
	switch lockType {
	case leaderelection.ConfigMapLock.String():
		return inspect.ConfigMap
	case leaderelection.LeaseLock.String():
		return inspect.Lease
	}
	return inspect.Both
}

// addGuards adds what keeps others from writing, and what wants somebody to look.
func (s *site) addGuards(e *debug.Election, le *leaderelection.LeaderElection) {
	if s.config.remote {
		e.Cluster = remoteLabel
	}
	if !s.config.DisableGate {
		e.Gate = "shut"
		if e.Phase == "disabled" || le.Gate().Check() == nil {
			e.Gate = "open"
		}
	}
	if state := s.fence.State(le.Status().Lock); state != nil {
		e.Fence, e.FenceBroken = "in effect", !state.InEffect
		if e.FenceBroken {
			e.Fence = strings.TrimSpace(state.Answer + " " + state.Detail)
		}
	}
	e.Problem = s.others.state(le)
}
