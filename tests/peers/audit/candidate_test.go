package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// orderVariable has the order of a candidate's process, as JSON.
const orderVariable = "PEERS_AUDIT_ORDER"

// returned is the output of a candidate's process when a run function has returned.
const returned = "the run function has returned"

// order describes a candidate in its own process.
type order struct {
	Library electors.Library
	Spec    electors.Spec
	Pod     string
}

// campaign is the main function of a candidate's process. The process ends by SIGKILL.
func campaign(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	process, err := electors.NewProcess(o.Library, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	o.Spec.Work = func(stop <-chan struct{}, client kubernetes.Interface) {
		reconcile(stop, client, o.Spec.Namespace, o.Pod)
		fmt.Println(returned)
	}
	candidate, err := process.Candidate(o.Spec)
	if err != nil {
		return err
	}
	candidate.Start(context.Background())
	select {}
}

const (
	// objects is the number of written objects.
	objects = 10
	// pace is the time between two writes.
	pace = 150 * time.Millisecond
)

func object(n int) string { return fmt.Sprint("object-", n) }

// reconcile writes all objects in each pass. Like many controllers, it uses no context of the term. It notices the end of the term between
// two passes, and then empties its queue in one more pass. So it always writes after it noticed the end, if it can.
func reconcile(stop <-chan struct{}, client kubernetes.Interface, namespace, pod string) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	stopping := false
	for pass := 0; !stopping; pass++ {
		select {
		case <-stop:
			stopping = true
		default:
		}
		for n := range objects {
			<-tick.C
			body := fmt.Appendf(nil, `{"data":{"pod":%q,"pass":"%d"}}`, pod, pass)
			_, err := client.CoreV1().ConfigMaps(namespace).Patch(context.Background(), object(n), types.MergePatchType, body, metav1.PatchOptions{})
			if err != nil {
				fmt.Fprintln(os.Stderr, pod, err)
			}
		}
	}
}
