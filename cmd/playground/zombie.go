package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
)

// zombie is a leader that is stopped for so long that another leads.
type zombie struct {
	pod, kubeconfig, address string
	// at is when it was stopped, refused how many of its writes the fence had refused by then.
	at      time.Time
	refused float64
}

// freeze stops the leader's process. It does nothing more until it is let go on, and what
// it does then is for gate and fence to stop.
func (d *demo) freeze(ctx context.Context) (time.Time, error) {
	leader, err := d.leader()
	if err != nil {
		return time.Time{}, err
	}
	pod, err := d.node.Pod(systemNamespace, leader)
	if err != nil {
		return time.Time{}, err
	}
	d.zombie = zombie{pod: leader, kubeconfig: filepath.Join(filepath.Dir(pod.Log), "kubeconfig"), address: pod.Address}
	if _, d.zombie.refused, err = d.admitted(ctx, leader); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	d.zombie.at = at
	if err := d.node.Signal(systemNamespace, leader, syscall.SIGSTOP); err != nil {
		return at, fmt.Errorf("stopping pod %s: %w", leader, err)
	}
	d.journal.died(leader, at, time.Now())
	return at, nil
}

// revive lets the zombie go on, after a write as it would send one without a gate: by its
// own token, to what it wrote a moment ago.
func (d *demo) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, fmt.Errorf("not within %v", d.limit))
	defer cancel()
	if err := d.writeAsZombie(ctx); err != nil {
		return errors.Join(err, d.node.Signal(systemNamespace, d.zombie.pod, syscall.SIGCONT))
	}
	at := time.Now()
	if err := d.node.Signal(systemNamespace, d.zombie.pod, syscall.SIGCONT); err != nil {
		return fmt.Errorf("continuing pod %s: %w", d.zombie.pod, err)
	}
	phase, err := d.awaitAwake(ctx)
	if err != nil {
		return err
	}
	d.line("%s goes on, and knows after %s: it is %s", d.zombie.pod, round(time.Since(at)), phase)
	_, refused, err := d.admitted(ctx, d.zombie.pod)
	if err != nil {
		return err
	}
	if refused > d.zombie.refused {
		return fmt.Errorf("the gate of %s has let %v writes through after its term, which the fence refused", d.zombie.pod, refused-d.zombie.refused)
	}
	return d.judge(ctx, awake, d.zombie.pod, d.zombie.at)
}

// writeAsZombie is refused, or something is wrong.
func (d *demo) writeAsZombie(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", d.zombie.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the zombie's kubeconfig: %w", err)
	}
	client, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	body := fmt.Appendf(nil, `{"data":{%q:"written by a zombie"}}`, rootCertKey)
	_, err = client.Kube().CoreV1().ConfigMaps(systemNamespace).Patch(ctx, rootCertName, types.MergePatchType, body, metav1.PatchOptions{})
	if !fence.IsRefusal(err) {
		return fmt.Errorf("a write by the stopped leader's token should be refused by the fence, and the answer was: %w", orAdmitted(err))
	}
	d.line("a write by its token, past its gate; the API server says:")
	for line := range strings.SplitSeq(wrap(err.Error(), 100), "\n") {
		d.line("   %s", line)
	}
	return nil
}

var errAdmitted = errors.New("admitted")

func orAdmitted(err error) error {
	if err == nil {
		return errAdmitted
	}
	return err
}

// wrap breaks a text at spaces.
func wrap(text string, width int) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		if i > 0 && column+1+len(word) > width {
			out.WriteByte('\n')
			column = 0
		} else if i > 0 {
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String()
}

// awaitAwake asks the zombie itself what it is, until it answers that it does not lead.
func (d *demo) awaitAwake(ctx context.Context) (phase string, err error) {
	for {
		var states []struct {
			Lock, Phase string
			Leading     bool
		}
		err := getJSON(ctx, fmt.Sprintf("http://%s:%d/debug/elections", d.zombie.address, port), &states)
		for _, state := range states {
			if err == nil && state.Lock == witnessed && !state.Leading && state.Phase == "following" {
				return state.Phase, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("pod %s does not say that it follows: %w", d.zombie.pod, errors.Join(err, context.Cause(ctx)))
		case <-time.After(recheck):
		}
	}
}

func getJSON(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Close = true // no connection is left behind
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
