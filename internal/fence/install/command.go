package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pkg/kube"
)

const (
	userAgent = "incumbent-pilot"
	// verifyPause is the time between two verifications of a fence that was just installed.
	verifyPause = 200 * time.Millisecond
)

// connection has clients for all API servers of a cluster. The first one is the server of the configuration.
type connection struct {
	clients []kube.Client
	// unreachable has a finding for each API server that cannot be checked.
	unreachable []Finding
}

func newClient(config *rest.Config) (kube.Client, error) {
	return kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithUserAgent(userAgent), kube.WithOwnConnections())
}

func (c Config) connect(ctx context.Context) (*connection, error) {
	config := c.RESTConfig
	var err error
	if config == nil {
		config, err = kube.LoadConfig(c.Kubernetes)
	}
	if err != nil {
		return nil, err
	}
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	to := &connection{clients: []kube.Client{client}}
	further, unreachable := c.apiServers(ctx, client)
	to.unreachable = unreachable
	for _, there := range further {
		client, err := newClient(there)
		if err != nil {
			to.close()
			return nil, fmt.Errorf("--api-server=%s: %w", there.Host, err)
		}
		to.clients = append(to.clients, client)
	}
	return to, nil
}

func (to *connection) close() {
	for _, client := range to.clients {
		kube.CloseIdleConnections(client)
	}
}

func (to *connection) first() kubernetes.Interface { return to.clients[0].Kube() }

// further has all API servers except the first.
func (to *connection) further() (all []kubernetes.Interface) {
	for _, client := range to.clients[1:] {
		all = append(all, client.Kube())
	}
	return all
}

// verify checks each API server.
func (to *connection) verify(ctx context.Context, set fence.Set, declarations []fence.Declaration) ([]Finding, error) {
	var all []Finding
	for _, client := range to.clients {
		findings, err := Verify(ctx, client, set, declarations...)
		all = append(all, findings...)
		if err != nil {
			return all, fmt.Errorf("API server %s: %w", client.RESTConfig().Host, err)
		}
	}
	return all, nil
}

// leaderTries is the number of verifications in a row that reject the leader until await returns. A leader whose writes are rejected
// keeps its term for its validity only.
const leaderTries = 10

// await verifies the fence until it is in effect.
func (to *connection) await(ctx context.Context, set fence.Set, declarations []fence.Declaration) ([]Finding, error) {
	for rejected := 0; ; {
		findings, err := to.verify(ctx, set, declarations)
		if err == nil {
			err = Judge(findings, Judging{AllowUnclear: true}) // waiting does not make unclear checks clear
		}
		if err == nil {
			return findings, nil
		}
		if rejected++; !slices.ContainsFunc(findings, func(f Finding) bool { return f.leader }) {
			rejected = 0
		}
		if rejected == leaderTries {
			return findings, err
		}
		if ended := apirequest.Pause(ctx, verifyPause); ended != nil {
			return findings, errors.Join(err, ended)
		}
	}
}

// Install installs or updates the fence and prints its changes. It returns after every API server enforces the
// fence, or with an error after Wait.
func (c Config) Install(ctx context.Context, out io.Writer) error {
	render := func(context.Context, kubernetes.Interface) (fence.Set, []fence.Declaration, error) { return c.render() }
	if c.Stored {
		render = c.stored
	} else if _, _, err := c.render(); err != nil {
		return err
	}
	to, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer to.close()
	set, declarations, err := render(ctx, to.first())
	if err != nil {
		return err
	}
	if err := c.judgeUnreachable(to, out); err != nil {
		return err
	}
	if err := c.precheck(ctx, to, declarations, out); err != nil {
		return err
	}
	before, err := bySet(ctx, to.first())
	if err != nil {
		return err
	}
	changes, err := Apply(ctx, to.first(), set, Options{Replace: c.Replace, Servers: to.further()})
	printLines(out, changes)
	if err != nil || c.Wait == 0 {
		return c.withoutTest(out, to, declarations, err)
	}
	if err = c.awaitEffect(ctx, to, set, declarations, out); err == nil || c.Keep || ctx.Err() != nil {
		return err
	}
	changes, failed := c.undo(ctx, to, before)
	printLines(out, changes)
	if failed != nil {
		return errors.Join(err, fmt.Errorf("the fence is still installed, because the installation was not undone: %w", failed))
	}
	return fmt.Errorf("%w. The installation was undone; use --keep to keep a fence that does not pass", err)
}

// withoutTest ends an installation that failed with err or does not wait.
func (c Config) withoutTest(out io.Writer, to *connection, declarations []fence.Declaration, err error) error {
	if len(to.unreachable) > 0 {
		err = errors.Join(c.print(out, to.unreachable), err)
	}
	if err == nil {
		printUntested(out, declarations)
	}
	return err
}

// judgeUnreachable returns an error if unreachable API servers prevent the installation: old policies must not be removed before
// each API server has the new ones.
func (c Config) judgeUnreachable(to *connection, out io.Writer) error {
	if len(to.unreachable) == 0 {
		return nil
	}
	if err := Judge(to.unreachable, c.Judging); err != nil {
		return errors.Join(c.print(out, to.unreachable), fmt.Errorf("nothing was changed: %w", err))
	}
	return nil
}

// awaitEffect waits until every API server enforces the fence, and prints the findings.
func (c Config) awaitEffect(ctx context.Context, to *connection, set fence.Set, declarations []fence.Declaration, out io.Writer) error {
	waiting, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf("the fence is not in effect after %v", c.Wait))
	defer cancel()
	findings, err := to.await(waiting, set, declarations)
	if err == nil {
		err = Judge(findings, c.Judging)
	}
	return errors.Join(c.print(out, append(to.unreachable, findings...)), err)
}

// printUntested prints how to test a fence that was installed without waiting.
func printUntested(out io.Writer, declarations []fence.Declaration) {
	namespaces := map[string]bool{}
	for _, d := range declarations {
		namespaces[d.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		fmt.Fprintf(out, "the fence was not tested, because of --wait 0; test it: electionctl fence verify -n %s\n", namespace)
	}
}

func printLines[T fmt.Stringer](out io.Writer, list []T) {
	for _, item := range list {
		fmt.Fprintln(out, inspect.Printable(item.String()))
	}
}

// precheck returns an error if the fence would reject the present leaders, or if its service accounts are missing.
func (c Config) precheck(ctx context.Context, to *connection, declarations []fence.Declaration, out io.Writer) error {
	if c.Keep {
		return nil
	}
	v := newVerifier(ctx, to.clients[0])
	v.holders(declarations)
	findings, err := v.findings, v.err
	if err == nil && len(findings) > 0 {
		err = Judge(findings, c.Judging)
	}
	if err == nil {
		return nil
	}
	return errors.Join(c.print(out, append(to.unreachable, findings...)), fmt.Errorf("nothing was changed: %w. Use --keep to install it without this check", err))
}

// undo restores the sets that were installed before: the own one, and with Replace those whose guards were replaced.
func (c Config) undo(ctx context.Context, to *connection, before map[string][]admissionv1.ValidatingAdmissionPolicy) ([]Change, error) {
	ctx, cancel := context.WithTimeout(ctx, max(c.Wait, undoTimeout))
	defer cancel()
	own := c.withDefaults().Set
	options := Options{Replace: true, Servers: to.further()}
	var changes []Change
	if len(before[own]) == 0 {
		removed, err := Remove(ctx, to.first(), own, options)
		if err != nil {
			return removed, err
		}
		changes = removed
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if name != own && !c.Replace {
			continue
		}
		set, _, err := storedSet(name, "", before[name])
		if err != nil {
			return changes, fmt.Errorf("fence %q: %w", name, err)
		}
		restored, err := Apply(ctx, to.first(), set, options)
		changes = append(changes, restored...)
		if err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// undoTimeout is the minimum time to restore the previous installation.
const undoTimeout = 30 * time.Second

// Verify prints the result of each check. It returns an error if one failed. Without a set, file, accounts or revisions it checks
// the installed sets of the namespace.
func (c Config) Verify(ctx context.Context, out io.Writer) error {
	byLabel := c.Set+c.File == "" && len(c.ServiceAccounts)+len(c.Revisions) == 0
	set, declarations, err := c.render()
	if err != nil && !byLabel {
		return err
	}
	to, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer to.close()
	var findings []Finding
	if byLabel {
		findings, err = c.verifyDiscovered(ctx, to)
	} else {
		findings, err = to.verify(ctx, set, declarations)
	}
	findings = append(to.unreachable, findings...)
	if err == nil {
		err = Judge(findings, c.Judging)
	}
	return errors.Join(c.print(out, findings), err)
}

// verifyDiscovered checks the installed sets of the namespace.
func (c Config) verifyDiscovered(ctx context.Context, to *connection) (all []Finding, _ error) {
	there, err := bySet(ctx, to.first())
	if err != nil {
		return nil, err
	}
	namespace := c.withDefaults().Namespace
	sets := Discover(namespace, there)
	if len(sets) == 0 {
		return nil, fmt.Errorf("no fence is installed for namespace %s: install it", namespace)
	}
	for _, d := range sets {
		if d.Err != nil {
			all = append(all, Finding{
				Server: to.clients[0].RESTConfig().Host, What: "set " + d.Name + " is installed as declared", Verdict: Undecided,
				Why: d.Err.Error() + ". Run `" + d.Repair + "`",
			})
			continue
		}
		findings, err := to.verify(ctx, d.Set, d.Declarations)
		for i, f := range findings {
			if f.Verdict == Fails && strings.HasPrefix(f.What, "policy ") {
				findings[i].Why = strings.ReplaceAll(f.Why, "`pilot fence install`", "`"+d.Repair+"`")
			}
		}
		all = append(all, findings...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Remove removes the fence and prints the removed objects.
func (c Config) Remove(ctx context.Context, out io.Writer) error {
	to, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer to.close()
	printLines(out, to.unreachable)
	set := c.withDefaults().Set
	changes, err := Remove(ctx, to.first(), set, Options{Servers: to.further()})
	printLines(out, changes)
	if err != nil || len(changes) > 0 {
		return err
	}
	there, err := bySet(ctx, to.first())
	if err != nil {
		return err
	}
	others := "no fence is installed"
	if len(there) > 0 {
		others = strings.Join(slices.Sorted(maps.Keys(there)), ", ") + " can be selected with --set"
	}
	fmt.Fprintf(out, "fence %q is not installed; %s\n", set, others)
	return nil
}

// Report prints the writes that fences rejected or would reject, from an API server's audit log.
func (c Config) Report(out io.Writer) error {
	log := os.Stdin
	if c.AuditLog != "" && c.AuditLog != "-" {
		file, err := os.Open(c.AuditLog)
		if err != nil {
			return fmt.Errorf("--audit-log: %w", err)
		}
		defer file.Close()
		log = file
	}
	found, err := Report("--audit-log="+c.AuditLog, log)
	if err == nil && len(found) == 0 && c.table() {
		_, err := fmt.Fprintln(out, "no violations found")
		return err
	}
	return errors.Join(printAll(out, c, found), err)
}

// print writes the findings, failures first. A table has the checks that passed only with Verbose, and the number of each verdict.
func (c Config) print(out io.Writer, findings []Finding) error {
	order := []Verdict{Fails, Undecided, Skipped, Holds}
	shown := slices.Clone(findings)
	slices.SortStableFunc(shown, func(a, b Finding) int { return slices.Index(order, a.Verdict) - slices.Index(order, b.Verdict) })
	if c.table() && !c.Verbose {
		shown = slices.DeleteFunc(shown, func(f Finding) bool { return f.Verdict == Holds })
	}
	err := printAll(out, c, shown)
	if err != nil || len(findings) == 0 || !c.table() {
		return err
	}
	count := map[Verdict]int{}
	for _, f := range findings {
		count[f.Verdict]++
	}
	_, err = fmt.Fprintf(out, "%d checks: %d passed, %d skipped, %d unclear, %d failed\n", len(findings), count[Holds], count[Skipped], count[Undecided], count[Fails])
	return err
}

func (c Config) table() bool { return c.Output == "" || c.Output == "table" }

// printAll writes a list in the format of Output.
func printAll[T fmt.Stringer](out io.Writer, c Config, list []T) error {
	if c.table() {
		printLines(out, list)
		return nil
	}
	var err error
	switch c.Output {
	case "json":
		err = inspect.WriteJSON(out, list)
	case "yaml":
		var text []byte
		if text, err = yaml.Marshal(list); err == nil {
			_, err = out.Write(text)
		}
	default:
		return fmt.Errorf("--output=%s: use table, json or yaml", c.Output)
	}
	if err != nil {
		return fmt.Errorf("--output=%s: %w", c.Output, err)
	}
	return nil
}
