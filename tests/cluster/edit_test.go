package cluster_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/tests/cluster"
)

// oneObject is a client of at most one object. Its first writes fail with errs, after another write.
type oneObject struct {
	stored *corev1.ConfigMap
	errs   []error
	last   string // write
}

func (o *oneObject) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	if o.stored == nil || o.stored.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return o.stored.DeepCopy(), nil
}

func (o *oneObject) write(object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	if len(o.errs) > 0 {
		err := o.errs[0]
		o.errs = o.errs[1:]
		o.stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Data: map[string]string{"theirs": "1"}}
		return nil, err
	}
	o.stored = object
	return object, nil
}

func (o *oneObject) Create(_ context.Context, object *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	o.last = "create"
	return o.write(object)
}

func (o *oneObject) Update(_ context.Context, object *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	o.last = "update"
	return o.write(object)
}

func TestEdit(t *testing.T) {
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"theirs": "0"}}
	conflict, refused := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed")), errors.New("refused")
	for name, test := range map[string]struct {
		o      oneObject
		last   string
		theirs string
		err    error
	}{
		"absent":    {oneObject{}, "create", "", nil},
		"there":     {oneObject{stored: there}, "update", "0", nil},
		"overtaken": {oneObject{stored: there, errs: []error{conflict, conflict}}, "update", "1", nil},
		"refused":   {oneObject{stored: there, errs: []error{refused}}, "update", "1", refused},
	} {
		o := test.o
		err := cluster.Edit(t.Context(), &o, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, func(cm *corev1.ConfigMap) {
			metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "ours", "1")
		})
		if !errors.Is(err, test.err) || o.last != test.last || o.stored.Data["theirs"] != test.theirs || (err == nil) != (o.stored.Annotations["ours"] == "1") {
			t.Errorf("%s: %v after %s, stored %v %v", name, err, o.last, o.stored.Annotations, o.stored.Data)
		}
	}
}
