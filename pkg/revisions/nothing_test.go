package revisions

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	admission "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
)

// A script has no objects of the other kinds. tagkinds_test.go has tests with all kinds.
func (s scriptedSet) CoreV1() core.CoreV1Interface { return noCore{} }

func (s scriptedGroup) ValidatingWebhookConfigurations() admission.ValidatingWebhookConfigurationInterface {
	return noValidators{}
}

type noCore struct{ core.CoreV1Interface }

func (noCore) Services(string) core.ServiceInterface { return noServices{} }

type noServices struct{ core.ServiceInterface }

func (noServices) List(context.Context, metav1.ListOptions) (*corev1.ServiceList, error) {
	return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
}

func (noServices) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

type noValidators struct {
	admission.ValidatingWebhookConfigurationInterface
}

func (noValidators) List(context.Context, metav1.ListOptions) (*admissionv1.ValidatingWebhookConfigurationList, error) {
	return &admissionv1.ValidatingWebhookConfigurationList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
}

func (noValidators) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}
