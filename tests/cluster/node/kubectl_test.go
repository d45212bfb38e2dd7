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
		"logs talker --since=5s": "sinceSeconds: a process node supports only --follow and --tail",
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
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Fatalf("kubectl logs -f shows %q (%v), want %q", got, err, want)
		}
	}
	expect("process continues")
	if err := w.node.Signal(w.namespace, "talker", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	expect("process was asked")
	w.kubectl("delete", "pod", "talker")
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil || follow.Wait() != nil {
		t.Errorf("kubectl logs -f shows %q (%v) after the end of the Pod, and ends with %v", rest, err, follow.ProcessState)
	}
}
