package page

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
)

func TestChangesFromEvents(t *testing.T) {
	about := corev1.ObjectReference{Kind: inspect.ConfigMap, Namespace: "home", Name: "led"}
	at := func(second int, about corev1.ObjectReference, message string) corev1.Event {
		return corev1.Event{InvolvedObject: about, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(second), 0))}
	}
	other, lease, abroad := about, about, about
	other.Name, lease.Kind, abroad.Namespace = "other", inspect.Lease, "elsewhere"
	precise := corev1.Event{InvolvedObject: about, Message: "d became leader (lock-free)", EventTime: metav1.NewMicroTime(time.Unix(40, 0))}
	created := corev1.Event{InvolvedObject: about, Message: "d stopped leading (stopped)", ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(50, 0))}}
	events := []corev1.Event{
		created, precise,
		at(20, about, "b became leader (nominated)"), at(20, about, "a stopped leading (handing-over)"),
		at(10, about, "a became leader"), at(12, about, "a requested a handover"), at(13, about, ""),
		at(30, about, "c became leader (preempted)"), at(31, about, "b stopped leading (superseded): late"),
		at(11, other, "x became leader"), at(11, lease, "x became leader"), at(11, abroad, "x became leader"),
	}
	change := func(second int, leader string) Change {
		return Change{At: time.Unix(int64(second), 0), Leader: leader, Acting: leader != ""}
	}
	want := []Change{change(10, "a"), change(20, ""), change(20, "b"), change(30, "c"), change(40, "d"), change(50, "")}
	got := changesOf(events, inspect.Election{Lock: inspect.ConfigMap, Namespace: "home", Name: "led"})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
