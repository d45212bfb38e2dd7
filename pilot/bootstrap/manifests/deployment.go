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
	selector := v.selector()
	meta.Labels[appLabel] = v.Name
	replicas, grace := v.Replicas, int64(graceSeconds)
	yes := true
	return &appsv1.Deployment{
		TypeMeta: kind("apps/v1", "Deployment"), ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Strategy: v.strategy(),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec: corev1.PodSpec{
					ServiceAccountName:            meta.Name,
					TerminationGracePeriodSeconds: &grace,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{v.container()},
					Volumes:    v.volumes(),
				},
			},
		},
	}
}

// strategy keeps all replicas until the next one is ready. Without elections, the old replica ends first, because both would
// run the controllers.
func (v Values) strategy() appsv1.DeploymentStrategy {
	if v.WithoutElections {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
	return appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
	}
}

func (v Values) container() corev1.Container {
	yes, no := true, false
	c := corev1.Container{
		Name: "pilot", Image: v.Image, Args: v.arguments(), Env: v.environment(),
		Ports:          []corev1.ContainerPort{{Name: portName, ContainerPort: v.port()}},
		ReadinessProbe: probe("/readyz", 5),
		LivenessProbe:  probe("/healthz", 10),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if v.CABundleConfigMap != "" {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "ca", MountPath: caFolder, ReadOnly: true})
	}
	if v.RemoteKubeconfigSecret != "" {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "remote", MountPath: remoteFolder, ReadOnly: true})
	}
	return c
}

func probe(path string, seconds int32) *corev1.Probe {
	return &corev1.Probe{
		PeriodSeconds: seconds, TimeoutSeconds: 5,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(portName)}},
	}
}

// environment starts with the fields of the Pod, so that other variables can refer to them.
func (v Values) environment() []corev1.EnvVar {
	env := []corev1.EnvVar{
		field("POD_NAME", "metadata.name"), field("POD_UID", "metadata.uid"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP"),
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

func (v Values) volumes() (all []corev1.Volume) {
	if v.CABundleConfigMap != "" {
		all = append(all, corev1.Volume{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.CABundleConfigMap},
		}}})
	}
	if v.RemoteKubeconfigSecret != "" {
		all = append(all, corev1.Volume{Name: "remote", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: v.RemoteKubeconfigSecret,
		}}})
	}
	return all
}
