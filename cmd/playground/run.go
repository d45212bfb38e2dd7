package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/debug"
)

const (
	// drawInterval is how often the table may change.
	drawInterval = 200 * time.Millisecond
	// serverInterval is how often the API server is asked whether it is there, serverLimit how
	// long it may take to say so.
	serverInterval, serverLimit = 500 * time.Millisecond, 2 * time.Second
	// askLimit bounds a request to a replica.
	askLimit = 5 * time.Second
)

// playRun shows the elections until ctx ends.
func playRun(ctx context.Context, s *stage) error {
	guide, err := s.guide(ctx)
	if err != nil {
		return err
	}
	s.screen.print(guide)
	askCtx, stop := context.WithCancel(ctx)
	var asker sync.WaitGroup
	asker.Go(func() { s.askServer(askCtx) })
	asker.Go(func() { s.askSample(askCtx) })
	defer asker.Wait()
	defer stop()
	ticker := time.NewTicker(drawInterval)
	defer ticker.Stop()
	news := &news{}
	var shown string
	ours := s.lockNames()
	for {
		v, _ := s.watched.now()
		spans := s.journal.all()
		for _, line := range news.lines(v, spans) {
			s.screen.say(line.at, "%s", line.text)
		}
		layout := func(width int) []string { return table(v, spans, ours, width) }
		if text := strings.Join(layout(0), "\n"); text != shown {
			shown = text
			s.screen.show(time.Now(), layout)
		}
		s.screen.fit()
		select {
		case <-ctx.Done():
			s.screen.leave()
			return nil
		case <-ticker.C:
		}
	}
}

// askServer asks the API server now and then whether it is there, until ctx ends.
func (s *stage) askServer(ctx context.Context) {
	ticker := time.NewTicker(serverInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		bounded, cancel := context.WithTimeout(ctx, serverLimit)
		asked := time.Now()
		_, err := s.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(bounded)
		cancel()
		if ctx.Err() == nil {
			s.watched.serverReady(err == nil, asked)
		}
	}
}

// guide is what to look at and to try. It has asked each replica. Their addresses stand in the table,
// because they change when Pods do.
func (s *stage) guide(ctx context.Context) (string, error) {
	var text strings.Builder
	v, _ := s.watched.now()
	one, page := "", ""
	for _, name := range slices.Sorted(maps.Keys(v.pods)) {
		one, page = "http://"+address(v.pods[name]), pageAddress(v.pods[name])
		for _, there := range []string{one + debug.Path, page} {
			if err := ask(ctx, there); err != nil {
				return "", err
			}
		}
	}
	if leading, ok := v.pods[v.locks[witnessed].holder]; ok { // whose page shows most
		page = pageAddress(leading)
	}
	fmt.Fprintf(&text, `
The control plane runs in two revisions, %s. Look at its elections in a browser:

   %s

Each replica has such a page at port %d of its address in the table below, and answers at %d, such as
%s, with /debug/elections as JSON, /healthz, /readyz and /metrics.
A lease lasts %v. Things to try in another terminal:

`, strings.Join(s.revisions(), " and "), page, pagePort, port, one, s.timing.lease)
	fmt.Fprintf(&text, "   export KUBECONFIG=%s\n", s.cluster.Kubeconfig())
	other := s.revisions()[1]
	ctl := shortest(filepath.Join(filepath.Dir(s.helmProgram), "electionctl"), "electionctl") + " -n " + systemNamespace
	fmt.Fprintf(&text, "\n   # why who leads, and what another default revision would move\n   %s explain istio-leader\n   %s plan --default-revision %s\n", ctl, ctl, other)
	fmt.Fprintf(&text, "\n   # make %s the default revision\n   %s -n %s upgrade tags %s --set default=%[1]s\n",
		other, shortest(s.helmProgram, "helm"), systemNamespace, shortest(s.chart("tags"), ""))
	for _, trial := range s.trials() {
		if trial.what != "" {
			fmt.Fprintf(&text, "\n   # %s\n", trial.what)
		}
		fmt.Fprintf(&text, "   %s %s\n", s.kubectl(), trial.how)
	}
	fmt.Fprintf(&text, "\nCtrl-C ends all of it.\n")
	return text.String(), nil
}

// trial is a thing to try: arguments of kubectl.
type trial struct{ what, how string }

// trials are those that go with how the locks are kept.
func (set settings) trials() (all []trial) {
	harm := []trial{
		{"delete the lock", "-n " + systemNamespace + " delete configmap " + witnessed},
		{"corrupt the record", "-n " + systemNamespace + " annotate configmap " + witnessed +
			" control-plane.alpha.kubernetes.io/leader=nonsense --overwrite"},
	}
	if set.coordinated {
		harm = []trial{
			{"the candidates, and whom the coordinator has named", "-n " + systemNamespace + " get leasecandidates,leases"},
			{"delete the lock", "-n " + systemNamespace + " delete lease " + witnessed},
		}
	}
	return slices.Concat(replicaTrials, harm, workTrials)
}

var replicaTrials = []trial{
	{"more replicas", "-n " + systemNamespace + " scale deployment pilot-stable --replicas=3"},
	{"stop the replicas of a revision, the leader maybe among them", "-n " + systemNamespace + " delete pod -l " + revisionLabel + "=stable"},
	{"what they say", "-n " + systemNamespace + " logs -l " + revisionLabel + "=stable --prefix --tail=3"},
}

var workTrials = []trial{
	{"give the leader work, and see it done", "create namespace hello"},
	{"", "-n hello get configmap " + rootCertName},
	{"what is made for the Gateway, and what its status says (it answers at the address in the table)",
		"-n " + sampleNamespace + " get gateway,httproute,ingress,deployment,service,pod"},
}

// kubectl is how to call it from here.
func (s *stage) kubectl() string { return shortest(filepath.Join(s.programs, "kubectl"), "kubectl") }

// shortest is how to name a file from here, or another name if it is not there.
func shortest(path, otherwise string) string {
	if _, err := os.Stat(path); err != nil && otherwise != "" {
		return otherwise
	}
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, path); err == nil && !strings.HasPrefix(short, "..") {
		return short
	}
	return path
}

// ask fails unless an address answers with success.
func ask(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, response.Status)
	}
	return nil
}

// news finds what has happened between two looks.
type news struct {
	known           map[string]span
	defaultRevision string
	away            bool
}

type newsLine struct {
	at   time.Time
	text string
}

func (n *news) lines(v view, spans []span) []newsLine {
	var lines []newsLine
	if n.known != nil && v.defaultRevision != n.defaultRevision {
		lines = append(lines, newsLine{time.Now(), fmt.Sprintf("the default revision is now %q", v.defaultRevision)})
	}
	n.defaultRevision = v.defaultRevision
	switch {
	case !v.awaySince.IsZero() && !n.away:
		lines = append(lines, newsLine{v.awaySince, "the API server is not ready any more"})
	case v.awaySince.IsZero() && n.away:
		lines = append(lines, newsLine{time.Now(), "the API server is ready again"})
	}
	n.away = !v.awaySince.IsZero()
	if n.known == nil {
		n.known = map[string]span{}
	}
	for _, s := range spans {
		key := s.pod + s.election + s.from.String()
		before, seen := n.known[key]
		if !seen {
			lines = append(lines, newsLine{s.from, fmt.Sprintf("%s began to work on %s", s.pod, s.election)})
		}
		if !s.to.IsZero() && before.to.IsZero() {
			lines = append(lines, newsLine{s.to, fmt.Sprintf("%s stopped working on %s", s.pod, s.election)})
		}
		n.known[key] = s
	}
	slices.SortStableFunc(lines, func(a, b newsLine) int { return a.at.Compare(b.at) })
	return lines
}
