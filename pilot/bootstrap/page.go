package bootstrap

import (
	"cmp"
	"context"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/page"
)

// electionsPage serves the elections page at --debug-address, apart from health and metrics.
type electionsPage struct {
	sites   []*site
	page    *page.Page
	http    *httpServer
	changed apirequest.Signal
}

// pageStop is the maximum time that the page needs to stop: its streams end immediately.
const pageStop = httpStop + stopGrace

func newElectionsPage(config Config, sites []*site) (*electionsPage, error) {
	p := &electionsPage{sites: sites, changed: apirequest.NewSignal()}
	p.page = page.New(page.Config{Source: func() page.State { return stateOf(sites) }, Changed: p.changed, Address: config.DebugAddress, Log: config.Logger})
	p.http = newHTTPServer("--debug-address", config.DebugAddress, p.page.Handler(), config.Logger)
	for _, at := range sites {
		var err error
		if at.locks, err = page.NewLockReader(at.own); err != nil {
			return nil, err
		}
		at.metrics.changed = p.changed.Send
		if !at.config.memberless() {
			at.candidates = page.NewCandidateWatch(at.own, at.config.Namespace, p.changed.Send, at.log)
		}
	}
	return p, nil
}

// part returns the page as a part of the server. If the page cannot listen, the server runs without it: the port may be
// in use by another replica on the same node's network.
func (p *electionsPage) part() part {
	log := p.sites[0].log
	return part{name: "elections page", bound: pageStop, run: func(ctx context.Context) error {
		if err := p.http.listen(); err != nil {
			log.Error("elections page is not available", "err", err)
			<-ctx.Done()
			return nil
		}
		log.Info("elections page", "url", "http://"+p.http.address()+page.Path)
		return p.run(ctx)
	}}
}

// run serves until ctx ends. The page ends before the listener, which waits for its streams.
func (p *electionsPage) run(ctx context.Context) error {
	serveCtx, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	pageCtx, stopPage := context.WithCancel(ctx)
	defer stopPage()
	served := make(chan error, 1)
	go func() {
		served <- p.http.serve(serveCtx)
		stopPage() // also if the listener fails
	}()
	var reads sync.WaitGroup
	reads.Go(func() { p.recordEvents(pageCtx) })
	reads.Go(func() { p.readLocks(pageCtx) })
	err := p.page.Run(pageCtx)
	stopPage()
	stopServing()
	reads.Wait()
	if serveErr := <-served; serveErr != nil {
		return serveErr
	}
	return err
}

// recordEvents adds terms from before the start of the process to the page's history.
func (p *electionsPage) recordEvents(ctx context.Context) {
	for _, at := range p.sites {
		if err := p.page.RecordEvents(ctx, at.own.Kube(), at.config.Namespace, at.observed()); err != nil && ctx.Err() == nil {
			at.log.Warn("elections page shows no terms from before its start", "err", err)
		}
	}
}

// readLocks reads the locks whose state this process does not know, until ctx ends.
func (p *electionsPage) readLocks(ctx context.Context) {
	for ctx.Err() == nil {
		for _, at := range p.sites {
			at.locks.Read(ctx, at.observed())
		}
		p.changed.Send()
		_ = apirequest.Pause(ctx, page.ReadInterval)
	}
}

// observed returns the elections of the site as this process observes them.
func (s *site) observed() (all []inspect.Election) {
	for _, le := range s.mine {
		e := inspect.FromStatus(le.Status(), time.Now())
		if s.config.Remote {
			e.Cluster = remoteLabel
		}
		all = append(all, e)
	}
	return all
}

// stateOf returns what the page shows now. Without a page, the candidates are unknown.
func stateOf(sites []*site) page.State {
	home := sites[0]
	s := page.State{Identity: home.config.Identity, Revision: home.config.Revision, Version: ReadBuild().Version, Elections: []inspect.Election{}}
	for _, e := range home.observed() {
		if e.Process.Default.Synced {
			s.Default = e.Process.Default
		}
	}
	for _, at := range sites {
		candidates := at.candidates.ByLock(time.Now())
		for i, e := range at.observed() {
			e = at.locks.Judge(e)
			at.annotate(&e, at.mine[i])
			taking := candidates[e.Name]
			if candidates != nil && taking == nil {
				taking = []inspect.Candidate{} // no candidates, instead of unknown candidates
			}
			s.Elections = append(s.Elections, e.With(taking, s.Default))
		}
	}
	return s
}

// annotate adds gate, fence and the problems of this process.
func (s *site) annotate(e *inspect.Election, le *leaderelection.LeaderElection) {
	p := e.Process
	if !s.config.DisableGate {
		p.Gate = "shut"
		if p.Phase == leaderelection.Disabled || le.Gate().Check() == nil {
			p.Gate = "open"
		}
	}
	if s.fence.Tests(e.Name) {
		p.Fence = cmp.Or(s.fence.State(e.Name), &fence.State{})
	}
	if problem := s.lockTypes.Problem(le); problem != "" {
		e.Problems = append(e.Problems, problem)
	}
}
