package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// variables are the environment of a process in order.
type variables struct {
	names  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, known := v.values[name]; !known {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// list returns the variables as NAME=value.
func (v *variables) list() []string {
	list := make([]string, 0, len(v.names))
	for _, name := range v.names {
		list = append(list, name+"="+v.values[name])
	}
	return list
}

// expand replaces $(NAME) by the value of a variable, as Kubernetes does. $$ is a dollar sign; unknown names stay.
func (v *variables) expand(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, known := v.values[name]
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && closed && known:
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// environment returns the complete environment of the process.
func (w *worker) environment(pod *corev1.Pod, container *corev1.Container, address string) (*variables, error) {
	v := &variables{values: map[string]string{}}
	work := filepath.Join(w.dir, workFolder)
	for _, own := range [][2]string{
		{"PATH", os.Getenv("PATH")}, {"HOME", work}, {"TMPDIR", work},
		{"KUBECONFIG", filepath.Join(w.dir, kubeconfigFile)},
		{"POD_NAME", pod.Name}, {"POD_NAMESPACE", pod.Namespace}, {"POD_IP", address},
	} {
		v.set(own[0], own[1])
	}
	for _, variable := range container.Env {
		value := v.expand(variable.Value)
		if from := variable.ValueFrom; from != nil {
			var err error
			if value, err = valueFrom(pod, from, address); err != nil {
				return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		v.set(variable.Name, value)
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
