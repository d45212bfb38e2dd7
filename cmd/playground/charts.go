package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/testutil/helm"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// tagsRelease is the release that says which revision is the default one. Those of revisions are called as these.
const tagsRelease = "tags"

// helm runs it, for the control plane's namespace. What it keeps for itself lies in the cluster's folder.
func (s *stage) helm(ctx context.Context, args ...string) error {
	program := helm.Helm{
		Program: s.helmProgram, Namespace: systemNamespace, Kubeconfig: s.cluster.Kubeconfig(), Home: filepath.Join(s.cluster.Dir(), "helm"),
	}
	_, err := program.Run(ctx, args...)
	return err
}

// chart is where one lies.
func (s *stage) chart(name string) string { return filepath.Join(s.charts, name) }

// values are the chart's for a revision.
func (s *stage) values(bundleFile string) map[string]any {
	values := map[string]any{
		"image":   image,
		"address": fmt.Sprintf("$(POD_IP):%d", port),
		// All pods are on one machine, and its loopback addresses are theirs: each has a page of its own.
		"debugAddress": fmt.Sprintf("$(POD_IP):%d", pagePort),
		"caBundle":     map[string]any{"file": bundleFile},
		"gate":         !s.ungated,
		"elections": map[string]any{
			"enabled": !s.lawless, "leaseDuration": s.timing.lease.String(), "renewDeadline": s.timing.renew.String(), "retryPeriod": s.timing.retry.String(),
		},
	}
	if s.coordinated {
		elections := values["elections"].(map[string]any)
		elections["lock"], elections["strategy"], elections["coordinator"] = "lease", coordination.DefaultRevision, !s.uncoordinated
	}
	if s.unfenced {
		values["fence"] = map[string]any{"mode": "none"}
	}
	if s.cluster.External() {
		// Its own scheduler and node controller are to leave these pods alone.
		values["pod"] = map[string]any{"nodeName": nodeName, "tolerations": []any{map[string]any{"operator": "Exists"}}}
	}
	return values
}

// install puts the control plane into the cluster by its charts, one revision after the other: the
// default one is there when the next one comes, as in an upgrade.
func (s *stage) install(ctx context.Context, bundleFile string) error {
	if err := s.objects.make(ctx, namespaceObject(systemNamespace)); err != nil {
		return err
	}
	content, err := json.Marshal(s.values(bundleFile))
	if err != nil {
		return fmt.Errorf("writing the charts' values: %w", err)
	}
	file := filepath.Join(s.cluster.Dir(), "values.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("writing the charts' values: %w", err)
	}
	s.installed = time.Now()
	for i, revision := range s.revisions() {
		began := time.Now()
		s.releases = append(s.releases, revision)
		of := image
		if s.coordinated && i == 0 {
			of = olderImage
		}
		if err := s.helm(ctx, "install", revision, s.chart("pilot"), "--values", file, "--set", "image="+of); err != nil {
			return err
		}
		s.screen.print(fmt.Sprintf("Revision %s is installed from its chart after %s.\n", revision, round(time.Since(began))))
		if err := s.awaitReady(ctx, i+1); err != nil {
			return err
		}
		if i == 0 {
			s.releases = append(s.releases, tagsRelease)
			if err := s.helm(ctx, "install", tagsRelease, s.chart("tags"), "--set", "default="+revision); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeDefault flips the tag.
func (s *stage) makeDefault(ctx context.Context, revision string) error {
	return s.helm(ctx, "upgrade", tagsRelease, s.chart("tags"), "--set", "default="+revision)
}

// uninstall takes away what was installed, last first.
func (s *stage) uninstall(ctx context.Context) error {
	var errs []error
	for _, release := range slices.Backward(s.releases) {
		errs = append(errs, s.helm(ctx, "uninstall", release, "--ignore-not-found"))
	}
	return errors.Join(errs...)
}
