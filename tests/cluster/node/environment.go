package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// variables are the environment of a process.
type variables map[string]string

// list returns the variables as NAME=value.
func (v variables) list() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		list = append(list, name+"="+v[name])
	}
	return list
}

var reference = regexp.MustCompile(`\$\$|\$\([^()]*\)`)

// expand replaces $(NAME) by the value of a variable, as Kubernetes does. $$ is a dollar sign; unknown names stay.
func (v variables) expand(text string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, known := v[found[2:len(found)-1]]; known {
			return value
		}
		return found
	})
}

// environment returns the complete environment of the process.
func (w *worker) environment(pod *corev1.Pod, container *corev1.Container, address string) (variables, error) {
	work := filepath.Join(w.dir, workFolder)
	v := variables{
		"PATH": os.Getenv("PATH"), "HOME": work, "TMPDIR": work, "KUBECONFIG": filepath.Join(w.dir, kubeconfigFile),
		"POD_NAME": pod.Name, "POD_NAMESPACE": pod.Namespace, "POD_IP": address,
	}
	for _, variable := range container.Env {
		value := v.expand(variable.Value)
		if from := variable.ValueFrom; from != nil {
			var err error
			if value, err = valueFrom(pod, from, address); err != nil {
				return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		v[variable.Name] = value
	}
	return v, nil
}

// valueFrom returns the value of a field of the Pod.
func valueFrom(pod *corev1.Pod, from *corev1.EnvVarSource, address string) (string, error) {
	if from.FieldRef == nil {
		return "", errors.New("a process node supports only values and fieldRef")
	}
	switch path := from.FieldRef.FieldPath; path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "status.podIP":
		return address, nil
	default:
		return "", fmt.Errorf("a process node does not support field %q", path)
	}
}
