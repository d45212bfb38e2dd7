package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// pagePort is the default port of pilot's --debug-address, on localhost in the pod.
const pagePort = 15016

func (p *Program) page() *cobra.Command {
	var local, remote int
	var open bool
	cmd := &cobra.Command{
		Use:               "page POD",
		Short:             "Open the elections page of a pod",
		Long:              "Forwards a local port to the pod (pilot server --debug-address), prints the address of the elections page, and opens it in a browser, until Ctrl-C. The page updates itself. For the same data as JSON use --pod-port=15014.",
		Example:           "  " + name() + " page -n istio-system pilot-stable-5599d85bc4-qz9hp",
		Args:              exactly("pod"),
		ValidArgsFunction: p.completePods,
		RunE: p.connected(nil, func(ctx context.Context, c *clients, args []string) error {
			pod, err := c.pod(ctx, c.at, args[0])
			switch {
			case err != nil:
				return err
			case pod.Status.Phase != corev1.PodRunning:
				return withCode(Refused, "pod %s is %s, not running: kubectl -n %s describe pod %s", pod.Name, pod.Status.Phase, c.at, pod.Name)
			}
			return p.forward(ctx, c, pod.Name, fmt.Sprintf("%d:%d", local, remote), open && p.Interactive)
		}),
	}
	cmd.Flags().IntVar(&local, "port", 0, "local port; 0 selects a free port")
	cmd.Flags().IntVar(&remote, "pod-port", pagePort, "port of the pod's --debug-address")
	cmd.Flags().BoolVar(&open, "open", true, "open the page in a browser if there is a terminal")
	return cmd
}

// forward forwards a port until ctx ends.
func (p *Program) forward(ctx context.Context, c *clients, pod, ports string, open bool) error {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return err
	}
	url := c.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.at).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ready, stop := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{ports}, stop, ready, io.Discard, p.ErrOut)
	if err != nil {
		return withCode(misused, "--port, --pod-port: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		return fmt.Errorf("forward to pod %s: %w", pod, err)
	}
	if err := p.announce(ctx, forwarder, open); err != nil {
		close(stop)
		return errors.Join(err, <-done)
	}
	select {
	case <-ctx.Done():
		close(stop)
		<-done
		return nil
	case err := <-done:
		return fmt.Errorf("connection to pod %s ended: %w", pod, errors.Join(err, errors.New("the pod or the network failed; use another pod")))
	}
}

func (p *Program) announce(ctx context.Context, forwarder *portforward.PortForwarder, open bool) error {
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("http://127.0.0.1:%d/debug/elections", ports[0].Local)
	fmt.Fprintf(p.Out, "%s\n", address)
	fmt.Fprintln(p.ErrOut, "Press Ctrl-C to stop.")
	if open {
		opener := "xdg-open"
		if runtime.GOOS == "darwin" {
			opener = "open"
		}
		// Without a browser the user has the address.
		if browser := exec.CommandContext(ctx, opener, address); browser.Start() == nil {
			go browser.Wait() //nolint:errcheck // the user sees whether it opened
		}
	}
	return nil
}
