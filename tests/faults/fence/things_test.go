package fence

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	mergePatch = types.MergePatchType
	applyPatch = types.ApplyPatchType
	second     = time.Second
)

func deployment() *appsv1.Deployment {
	labels := map[string]string{"a": "b"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: guarded, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
			},
		},
	}
}
