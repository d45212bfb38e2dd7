package node_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// starter starts a cluster, a node and a Pod, prints "up" and the folder of the cluster, and waits to be killed.
func starter() int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*bound)
	defer cancel()
	folder, err := startAll(ctx)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up", folder)
	<-ctx.Done()
	return 1
}

func startAll(ctx context.Context) (string, error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	n, err := node.New(node.Options{
		Config: c.Admin(), Dir: filepath.Join(c.Dir(), "pods"), Images: map[string]string{"replica": self},
	})
	if err != nil {
		return "", err
	}
	go n.Run(ctx)
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return "", err
	}
	// The argument identifies the process as part of this cluster.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: podSpec("stubborn", c.Dir())}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, bound, true, func(context.Context) (bool, error) {
		pod, err := n.Pod("default", "one")
		return err == nil && pod.Ready, nil
	})
	if err != nil {
		return "", fmt.Errorf("wait for Pod: %w", err)
	}
	if os.Getenv("NODE_TEST_PAUSE") != "" {
		err = errors.Join(c.APIServer().Pause(), n.Signal("default", "one", syscall.SIGSTOP))
	}
	return c.Dir(), err
}

func TestKilledStarter_LeavesNoProcess(t *testing.T) {
	for _, c := range []struct{ name, pause string }{{"running", ""}, {"stopped", "yes"}} {
		t.Run(c.name, func(t *testing.T) {
			command := exec.Command(self(t))
			command.Env = append(os.Environ(), roleVariable+"=starter", "NODE_TEST_PAUSE="+c.pause)
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(output).ReadString('\n')
			folder, up := strings.CutPrefix(strings.TrimSpace(line), "up ")
			if err != nil || !up {
				t.Errorf("starter printed %q (%v)", line, err)
			} else if there := processes(t, folder); len(there) != 4 {
				t.Errorf("it started %v", there)
			}
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = command.Wait()
			if up {
				awaitEnd(t, folder)
			}
		})
	}
}

// awaitEnd waits until no process of the cluster exists.
func awaitEnd(t *testing.T, folder string) {
	t.Helper()
	var left map[string]int
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, bound, true, func(context.Context) (bool, error) {
		left = processes(t, folder)
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Error(err)
	}
}

// processes returns the processes with the folder in their command line, by program.
func processes(t *testing.T, folder string) map[string]int {
	t.Helper()
	found := map[string]int{}
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		line, err := os.ReadFile(entry)
		if err != nil || !bytes.Contains(line, []byte(folder)) {
			continue // it may have ended
		}
		program, _, _ := bytes.Cut(line, []byte{0})
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(string(program))] = pid
	}
	return found
}
