package node_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestKubectlLogs(t *testing.T) {
	w := newWorld(t, nil)
	talker := podSpec("-c", "trap 'echo process was asked' USR1; echo process begins; echo process continues; while :; do sleep 0.05; done")
	talker.Containers[0].Image = "/bin/sh"
	talker.Containers[0].ReadinessProbe = nil
	w.create("talker", talker)
	w.ready(1)
	for args, want := range map[string]string{
		"logs talker":          "process begins\nprocess continues\n",
		"logs talker --tail=1": "process continues\n",
	} {
		w.until(want+" is the output of "+args, func(context.Context) (bool, error) {
			return w.kubectl(strings.Fields(args)...) == want, nil
		})
	}
	for args, want := range map[string]string{
		"logs talker --since=5s": "sinceSeconds: a process node supports only --follow, --previous and --tail",
		"logs talker --previous": "no previous process of Pod talker",
		"exec talker -- true":    "serves only the logs of Pods, and not /exec/",
	} {
		said, err := w.kubectlCommand(strings.Fields(args)...).CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || !strings.Contains(string(said), want) {
			t.Errorf("kubectl %s: %v, want %q in\n%s", args, err, want, said)
		}
	}
	follow := w.kubectlCommand("logs", "-f", "talker", "--tail=1")
	output, err := follow.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, follow.Start())
	lines := bufio.NewReader(output)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Fatalf("kubectl logs -f shows %q (%v), want %q", got, err, want)
		}
	}
	expect("process continues")
	harness.Must(t, w.node.Signal(w.namespace, "talker", syscall.SIGUSR1))
	expect("process was asked")
	w.kubectl("delete", "pod", "talker")
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil || follow.Wait() != nil {
		t.Errorf("kubectl logs -f shows %q (%v) after the end of the Pod, and ends with %v", rest, err, follow.ProcessState)
	}
}

func TestKubectlLogs_Previous(t *testing.T) {
	w := newWorld(t, nil)
	crasher := podSpec("-c", "echo process of $TMPDIR; if [ -e begun ]; then echo second; while :; do sleep 0.05; done; fi; touch begun; echo first; exit 3")
	crasher.Containers[0].Image = "/bin/sh"
	crasher.Containers[0].ReadinessProbe = nil
	w.create("crasher", crasher)
	w.until("the second process writes", func(context.Context) (bool, error) {
		return strings.HasSuffix(w.kubectl("logs", "crasher"), "second\n"), nil
	})
	if got := w.kubectl("logs", "crasher", "--previous"); !strings.HasSuffix(got, "first\n") || strings.Contains(got, "second") {
		t.Errorf("the log of the previous process is %q", got)
	}
	if got := w.kubectl("logs", "crasher", "--previous", "--tail=1"); got != "first\n" {
		t.Errorf("its last line is %q", got)
	}
}
