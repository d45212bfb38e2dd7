package bootstrap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// A row whose kind the API server does not know waits, and says so once; the other rows work. A
// definition that comes lets it begin.
func TestARowWaitsForItsKinds(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	waiting := newController()
	row := waiting.rows()[0]
	row.kinds = []schema.GroupVersionResource{
		{Group: "late.example", Version: "v1", Resource: "stages"}, {Version: "v1", Resource: "pods"}, {Group: "late.example", Version: "v1", Resource: "props"},
	}
	config := e.config(t, "a")
	r := start(t, config, append([]election{{
		id: leaderelection.NamespaceController, guards: namespaceController, rights: namespaceRights,
	}}, row))
	const line = "the API server does not know some kinds, waiting for their definitions"
	await(t, "it is said", func() bool { return r.lines.Count(line, "election="+electionID) == 1 })
	await(t, "the other row leads", func() bool { return r.election(t).Leading })
	absent := fmt.Sprintf("incumbent_election_definitions_missing{name=%q}", electionID)
	if n := r.metric(t, absent); n != "2" {
		t.Errorf("%s definitions are missing by the metric", n)
	}
	if r.metric(t, fmt.Sprintf("incumbent_election_definitions_missing{name=%q}", leaderelection.NamespaceController)) != "" {
		t.Error("an election that needs no definition has the metric")
	}
	for election, could := range map[string]string{electionID: "0", leaderelection.NamespaceController: "1"} {
		sample := fmt.Sprintf("incumbent_election_candidate{name=%q,revision=%q}", election, config.Revision)
		if n := r.metric(t, sample); n != could {
			t.Errorf("%s is %s, want %s", sample, n, could)
		}
	}
	if r.lines.Count(line, `missing="[stages.late.example props.late.example]"`) != 1 {
		t.Error("the line does not name the kinds")
	}
	select {
	case <-waiting.began:
		t.Error("the row works")
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.cluster.LoadDefinitions(ctx, definitions(t, "Stage", "Prop")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waiting.began:
	case <-ctx.Done():
		t.Fatal("the row does not work, with the kinds there")
	}
	if n := r.metric(t, absent); n != "0" {
		t.Errorf("with the definitions there, %s are missing by the metric", n)
	}
	if r.lines.Count(line) != 1 || r.lines.Count("the API server knows all kinds now", "election="+electionID) != 1 {
		t.Error("it is said more often than once, or not that it is over")
	}
}

// definitions is a folder of definitions of kinds that nobody else has, by their names in the singular.
func definitions(t *testing.T, kinds ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, kind := range kinds {
		singular := strings.ToLower(kind)
		text := fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: %[1]ss.late.example}\n"+
			"spec:\n  group: late.example\n  scope: Namespaced\n  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}\n"+
			"  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n", singular, kind)
		if err := os.WriteFile(filepath.Join(folder, singular+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
