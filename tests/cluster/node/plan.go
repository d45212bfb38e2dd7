package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// The names of a Pod's files, inside its folder.
const (
	tokenFile      = "token"
	kubeconfigFile = "kubeconfig"
	workFolder     = "work"
)

// plan is how to start the Pod's process. An error says what of the Pod cannot be done here.
func (w *worker) plan(address string) (process.Spec, error) {
	pod := w.latest.Load()
	container, err := onlyContainer(pod)
	if err != nil {
		return process.Spec{}, err
	}
	path, err := w.node.options.program(container.Image)
	if err != nil {
		return process.Spec{}, err
	}
	variables, err := w.environment(pod, container, address)
	if err != nil {
		return process.Spec{}, err
	}
	args := container.Args
	if len(container.Command) > 0 {
		// The image is one program, so the command's first word can only mean that.
		args = append(append([]string{}, container.Command[1:]...), container.Args...)
	}
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = variables.expand(arg)
	}
	return process.Spec{
		Name: fmt.Sprintf("the process of Pod %s/%s", w.namespace, w.name),
		Path: path, Args: expanded, Env: variables.list(),
		Dir: filepath.Join(w.dir, workFolder), Log: w.view.Log,
	}, nil
}

// onlyContainer is the Pod's container, if there is nothing about it that a process
// cannot be.
func onlyContainer(pod *corev1.Pod) (*corev1.Container, error) {
	switch {
	case len(pod.Spec.InitContainers) > 0:
		return nil, errors.New("a process node runs no init containers")
	case len(pod.Spec.Containers) != 1:
		return nil, fmt.Errorf("a process node runs one container in a Pod, this one has %d", len(pod.Spec.Containers))
	case len(pod.Spec.Containers[0].EnvFrom) > 0:
		return nil, errors.New("a process node knows no envFrom: name the variables in env")
	case pod.Spec.Containers[0].StartupProbe != nil:
		return nil, errors.New("a process node knows no startupProbe: give the livenessProbe an initialDelaySeconds")
	}
	if alive := pod.Spec.Containers[0].LivenessProbe; alive != nil && alive.HTTPGet == nil && alive.TCPSocket == nil {
		return nil, fmt.Errorf("livenessProbe: %w", errHandler)
	}
	return &pod.Spec.Containers[0], nil
}

// program is what an image stands for.
func (o Options) program(image string) (string, error) {
	if path, ok := o.Images[image]; ok {
		return path, nil
	}
	if filepath.IsAbs(image) {
		info, err := os.Stat(image)
		if err != nil {
			return "", fmt.Errorf("the program %s: %w", image, err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return "", fmt.Errorf("%s is no program", image)
		}
		return image, nil
	}
	known := make([]string, 0, len(o.Images))
	for name := range o.Images {
		known = append(known, name)
	}
	return "", fmt.Errorf("image %q stands for no program here: known are %s, and absolute paths", image, strings.Join(known, ", "))
}
