package manifests

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	appLabel      = "app"
	revisionLabel = "istio.io/rev"
	portName      = "http"
)

func (v Values) deployment() *appsv1.Deployment {
	meta := v.meta()
	selector := map[string]string{appLabel: v.Name, revisionLabel: v.Revision}
	meta.Labels[appLabel] = v.Name
	replicas, grace := v.Replicas, int64(graceSeconds)
	var strategy appsv1.DeploymentStrategy
	if v.WithoutElections {
		strategy.Type = appsv1.RecreateDeploymentStrategyType
	}
	return &appsv1.Deployment{
		TypeMeta: kind("apps/v1", "Deployment"), ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Strategy: strategy,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec: corev1.PodSpec{
					ServiceAccountName:            meta.Name,
					TerminationGracePeriodSeconds: &grace,
					Containers:                    []corev1.Container{v.container()},
					Volumes:                       v.volumes(),
				},
			},
		},
	}
}

func (v Values) container() corev1.Container {
	c := corev1.Container{
		Name: "pilot", Image: v.Image, Args: v.arguments(), Env: v.environment(),
		Ports:          []corev1.ContainerPort{{Name: portName, ContainerPort: httpPort}},
		ReadinessProbe: probe("/readyz", 5),
		LivenessProbe:  probe("/healthz", 10),
	}
	if v.CABundleConfigMap != "" {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: caFolder, ReadOnly: true}}
	}
	return c
}

func probe(path string, seconds int32) *corev1.Probe {
	return &corev1.Probe{
		PeriodSeconds: seconds, TimeoutSeconds: 5,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(portName)}},
	}
}

// environment begins with the fields of the Pod, so that others can refer to them.
func (v Values) environment() []corev1.EnvVar {
	env := []corev1.EnvVar{
		field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP"),
		{Name: "REVISION", Value: v.Revision},
	}
	if v.WithoutElections {
		env = append(env, corev1.EnvVar{Name: "ENABLE_LEADER_ELECTION", Value: "false"})
	}
	for _, name := range v.envNames() {
		env = append(env, corev1.EnvVar{Name: name, Value: v.Env[name]})
	}
	return env
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func (v Values) volumes() []corev1.Volume {
	if v.CABundleConfigMap == "" {
		return nil
	}
	source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: v.CABundleConfigMap},
	}}
	return []corev1.Volume{{Name: "ca", VolumeSource: source}}
}
