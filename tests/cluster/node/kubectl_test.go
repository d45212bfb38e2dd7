package node_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/tests/cluster/node"
)

func TestKubectlLogs(t *testing.T) {
	w := newWorld(t, func(o *node.Options) { o.RestartDelay = 50 * time.Millisecond })
	// Its process says its number, and more for each signal.
	talker := podSpec("-c", `n=$(cat count 2>/dev/null || echo 0); n=$((n+1)); echo $n >count
		trap 'echo process $n was asked; asked=yes' USR1
		echo process $n begins; echo process $n goes on
		while :; do sleep 0.05; done`)
	talker.Containers[0].Image = "/bin/sh"
	talker.Containers[0].ReadinessProbe = nil
	w.create("talker", talker)
	w.ready(1)
	says := func(want string, args ...string) {
		t.Helper()
		w.until(want+" is shown by logs "+strings.Join(args, " "), func(context.Context) (bool, error) {
			return w.kubectl(append([]string{"logs", "talker"}, args...)...) == want, nil
		})
	}
	says("process 1 begins\nprocess 1 goes on\n")
	says("process 1 goes on\n", "--tail=1")
	says("proc", "--limit-bytes=4")

	// Followed to its end, by one who came before.
	follow := exec.CommandContext(t.Context(), w.cluster.Kubectl(), "--kubeconfig", w.cluster.Kubeconfig(),
		"--namespace", w.namespace, "logs", "-f", "talker")
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
			t.Fatalf("following shows %q (%v), want %q", got, err, want)
		}
	}
	expect("process 1 begins")
	expect("process 1 goes on")
	if err := w.node.Signal(w.namespace, "talker", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	expect("process 1 was asked")
	if err := w.node.Signal(w.namespace, "talker", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("after the end of the process following shows %q (%v)", rest, err)
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("kubectl logs -f: %v", err)
	}

	says("process 2 begins\nprocess 2 goes on\n")
	says("process 1 begins\nprocess 1 goes on\nprocess 1 was asked\n", "--previous")
	w.refuses(t, "use --tail", "logs", "talker", "--since=5s")
	w.refuses(t, "serves logs, and nothing at /exec/", "exec", "talker", "--", "true")
}

// refuses runs kubectl, which has to fail with these words.
func (w *world) refuses(t *testing.T, words string, args ...string) {
	t.Helper()
	args = append([]string{"--kubeconfig", w.cluster.Kubeconfig(), "--namespace", w.namespace}, args...)
	said, err := exec.CommandContext(t.Context(), w.cluster.Kubectl(), args...).CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || !strings.Contains(string(said), words) {
		t.Errorf("kubectl %s: %v, want %q in\n%s", strings.Join(args[4:], " "), err, words, said)
	}
}

// A node that starts anew under its name has another address, where its logs are then asked for.
func TestANodeThatStartsAnewHasItsLogsAtItsNewAddress(t *testing.T) {
	first := newWorld(t, func(o *node.Options) { o.Name = "again" })
	address := func() string {
		there, err := first.client.CoreV1().Nodes().Get(t.Context(), "again", metav1.GetOptions{})
		if err != nil || len(there.Status.Addresses) == 0 {
			return ""
		}
		return there.Status.Addresses[0].Address
	}
	first.until("the first has registered", func(context.Context) (bool, error) { return address() != "", nil })
	before := address()
	second := newWorld(t, func(o *node.Options) { o.Name = "again" })
	second.until("the second has registered", func(context.Context) (bool, error) { return address() != before, nil })
	if strangers := stranger(t, address()); strangers == nil {
		t.Error("the node serves those who show no certificate")
	}
	// Who has one of the cluster's, and no right to what nodes serve.
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(second.cluster.Dir(), "controller-manager.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger(t, address(), certificate); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("the node serves those who may not get nodes/proxy: %v", err)
	}
}

// stranger asks a node's endpoint, with a certificate or without.
func stranger(t *testing.T, address string, certificates ...tls.Certificate) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: bound}
	response, err := client.Get("https://" + net.JoinHostPort(address, "10250") + "/containerLogs/default/one/replica")
	if err != nil {
		return err
	}
	return errors.Join(response.Body.Close(), map[bool]error{true: errors.New(response.Status)}[response.StatusCode != http.StatusOK])
}
