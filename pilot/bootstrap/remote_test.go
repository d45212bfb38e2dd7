package bootstrap

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// remoteHasItsEffect: the rows that work in a remote cluster do so there, too, as visitors, and no other row. That cluster answers
// nothing here; with a real one it is tests/integration/ground that tries it.
func remoteHasItsEffect(t *testing.T, e *environment) {
	asked := make(chan string, 1000)
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	t.Cleanup(there.Close)
	config := e.config(t, "a")
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "remote")
	if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: there.URL}, ""); err != nil {
		t.Fatal(err)
	}
	config.ExcludedNamespaces = []string{"default"}
	r := start(t, config, table[:1])
	r.leads(t)
	for {
		if path := <-asked; strings.HasSuffix(path, "/namespaces") {
			break // it looks for what to do there
		}
	}
	states := r.states(t)
	if len(states) != 2 || states[0].Cluster != "" || states[0].Key != "stable" || states[1].Cluster != "remote" || states[1].Key != "^stable" || states[1].Leading {
		t.Errorf("it says %+v", states)
	}
	sample := `{cluster="remote",name="` + leaderelection.NamespaceController + `"}`
	if got := r.metric(t, "leader_election_master_status"+sample); got != "0" {
		t.Errorf("the metric of the remote election is %q", got)
	}
	if code, text := r.page(t, "/readyz"); code != http.StatusOK {
		t.Errorf("it is not ready: %s", text)
	}
	if shared, perRevision := Elections(config.AtRemote()); !slices.Equal(shared, []string{leaderelection.NamespaceController}) || len(perRevision) > 0 {
		t.Errorf("there the elections are %q and %q", shared, perRevision)
	}
	if rights := Rights(config.AtRemote()); len(rights.Home) != 1 || len(rights.Everywhere) != len(namespaceRights(config).Everywhere) {
		t.Errorf("the rights there are %+v", rights)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// What the log calls an election is its lock: elections within revisions have one for each.
func TestTheLogNamesTheLock(t *testing.T) {
	config, text := goodConfig(), &harness.Log{}
	config.Logger = slog.New(slog.NewTextHandler(text, nil))
	rows := newController().rows()
	rows[0].perRevision, rows[0].guards = true, func(_ kube.Client, _ Config, tools tools) (job, error) {
		tools.log.Info("made")
		return newController(), nil
	}
	if _, err := newServer(config, rows); err != nil || text.Count("made", "election="+electionID+"-stable") != 1 {
		t.Errorf("%v, and the log is\n%s", err, text)
	}
}
