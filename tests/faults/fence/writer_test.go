package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// The environment of a writer's process.
const (
	roleVariable = "FENCE_TEST_ROLE"
	gateVariable = "FENCE_TEST_GATE"
	lockVariable = "FENCE_TEST_LOCK"
)

// writers is the number of concurrent writes of a process.
const writers = 4

// writer is a Pod's process: a candidate whose controller is the worst there can be. Once it
// has led, it writes until it ends, even if another process leads, as fast as it gets responses.
func writer() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := write(ctx); err != nil {
		fmt.Println("writer:", err)
		return 1
	}
	return 0
}

func write(ctx context.Context) error {
	config, err := kube.LoadConfig(kube.Source{List: os.Getenv("KUBECONFIG")})
	if err != nil {
		return err
	}
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithWrapTransport(stamped))
	if err != nil {
		return err
	}
	namespace, pod := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	lock := leaderelection.LockTypeConfigMap
	if os.Getenv(lockVariable) == string(fence.Lease) {
		lock = leaderelection.LockTypeLease
	}
	le, err := leaderelection.New(client, leaderelection.Config{
		Namespace: namespace, Identity: pod, ElectionID: election, Lock: lock,
		// Only a paused leader may lose the lock, also on a busy machine.
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	through := client
	if os.Getenv(gateVariable) == "on" {
		through = le.Client()
	}
	var once sync.Once
	var all sync.WaitGroup
	defer all.Wait()
	le.AddRunContext(func(term context.Context) error {
		once.Do(func() {
			for range writers {
				all.Go(func() { writeOn(ctx, through, namespace, pod) })
			}
		})
		<-term.Done()
		return nil
	})
	return le.RunContext(ctx)
}

// tries counts all writes of this process, for the log.
var tries atomic.Int64

// writeOn writes until the process ends, and prints its attempts regularly.
func writeOn(ctx context.Context, client kube.Client, namespace, pod string) {
	for ctx.Err() == nil {
		n := tries.Add(1)
		body, err := json.Marshal(map[string]any{"data": map[string]string{"pod": pod, "n": strconv.FormatInt(n, 10)}})
		if err != nil {
			panic(err)
		}
		begun := context.WithValue(ctx, beginning{}, time.Now())
		_, err = client.Kube().CoreV1().ConfigMaps(namespace).Patch(begun, guarded, mergePatch, body, metav1.PatchOptions{})
		if n%50 == 0 {
			fmt.Printf("try %d at %d: %v\n", n, time.Now().UnixNano(), err)
		}
		if err != nil {
			pause(ctx)
		}
	}
}

// pause keeps a process that is refused from doing nothing else.
func pause(ctx context.Context) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// beginning is the context key of the time at which a write began. That is before the gate checks it.
type beginning struct{}

// stamped returns the transport below the gate. It adds the beginning of each write to the request, for the audit log.
func stamped(next http.RoundTripper) http.RoundTripper { return stamper{next} }

type stamper struct{ next http.RoundTripper }

func (s stamper) RoundTrip(req *http.Request) (*http.Response, error) {
	if begun, ok := req.Context().Value(beginning{}).(time.Time); ok {
		req = req.Clone(req.Context())
		req.Header.Set("User-Agent", stampPrefix+strconv.FormatInt(begun.UnixNano(), 10))
	}
	return s.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport below.
func (s stamper) WrappedRoundTripper() http.RoundTripper { return s.next }

const stampPrefix = "writer/"

// writerPod runs one.
func writerPod(name string, kind fence.LockKind, gate string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "writer", Image: "writer", Env: []corev1.EnvVar{
				{Name: roleVariable, Value: "writer"}, {Name: gateVariable, Value: gate}, {Name: lockVariable, Value: string(kind)},
			}}},
		},
	}
}
