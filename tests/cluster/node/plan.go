package node

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// The files in the folder of a Pod.
const (
	tokenFile      = "token"
	kubeconfigFile = "kubeconfig"
	workFolder     = "work"
)

// plan returns how to start the process of the Pod, or why it cannot run.
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
		// The image is one program, so the first word of the command names it.
		args = append(append([]string{}, container.Command[1:]...), container.Args...)
	}
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = variables.expand(arg)
	}
	return process.Spec{
		Name: fmt.Sprintf("process of Pod %s/%s", w.namespace, w.name),
		Path: path, Args: expanded, Env: variables.list(),
		Dir: filepath.Join(w.dir, workFolder), Log: w.view.Log,
	}, nil
}

// onlyContainer returns the container of the Pod, or the unsupported field.
func onlyContainer(pod *corev1.Pod) (*corev1.Container, error) {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) > 0 || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		return nil, errors.New("a process node supports only one container without init containers, and only restartPolicy Always")
	}
	container := &pod.Spec.Containers[0]
	if len(container.EnvFrom) > 0 || container.StartupProbe != nil {
		return nil, errors.New("a process node does not support envFrom and startupProbe")
	}
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		if probe != nil && probe.HTTPGet == nil {
			return nil, errors.New("a process node supports only httpGet probes")
		}
	}
	return container, nil
}

// program returns the program of an image.
func (o Options) program(image string) (string, error) {
	if path, ok := o.Images[image]; ok {
		return path, nil
	}
	if filepath.IsAbs(image) {
		return image, nil
	}
	return "", fmt.Errorf("image %q has no program: known are %q, and absolute paths", image, slices.Sorted(maps.Keys(o.Images)))
}
