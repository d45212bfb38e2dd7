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
	"time"

	"incumbent.dev/incumbent/tests/cluster/node"
)

func TestKubectlLogs(t *testing.T) {
	w := newWorld(t, func(o *node.Options) { o.RestartDelay = 50 * time.Millisecond })
	// The process prints its number, and a line for each signal.
	talker := podSpec("-c", `n=$(cat count 2>/dev/null || echo 0); n=$((n+1)); echo $n >count
		trap 'echo process $n was asked; asked=yes' USR1
		echo process $n begins; echo process $n continues
		while :; do sleep 0.05; done`)
	talker.Containers[0].Image = "/bin/sh"
	talker.Containers[0].ReadinessProbe = nil
	w.create("talker", talker)
	w.ready(1)
	says := func(want string, args ...string) {
		t.Helper()
		w.until(want+" is the output of logs "+strings.Join(args, " "), func(context.Context) (bool, error) {
			return w.kubectl(append([]string{"logs", "talker"}, args...)...) == want, nil
		})
	}
	says("process 1 begins\nprocess 1 continues\n")
	says("process 1 continues\n", "--tail=1")

	// A follower that started before the end of the process.
	follow := w.kubectlCommand("logs", "-f", "talker")
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
	expect("process 1 begins")
	expect("process 1 continues")
	if err := w.node.Signal(w.namespace, "talker", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	expect("process 1 was asked")
	if err := w.node.Signal(w.namespace, "talker", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("kubectl logs -f shows %q (%v) after the end of the process", rest, err)
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("kubectl logs -f: %v", err)
	}

	says("process 2 begins\nprocess 2 continues\n")
	says("process 1 begins\nprocess 1 continues\nprocess 1 was asked\n", "--previous")
	w.refuses(t, "supports only --follow, --previous and --tail", "logs", "talker", "--since=5s")
	w.refuses(t, "serves only the logs of Pods, and not /exec/", "exec", "talker", "--", "true")
}

// refuses checks that kubectl fails with the given words.
func (w *world) refuses(t *testing.T, words string, args ...string) {
	t.Helper()
	said, err := w.kubectlCommand(args...).CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || !strings.Contains(string(said), words) {
		t.Errorf("kubectl %s: %v, want %q in\n%s", strings.Join(args, " "), err, words, said)
	}
}
