package elections

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/history"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// The test program plays a Pod's process when this says so.
const (
	roleVariable = "ELECTIONS_TEST_ROLE"
	replicaRole  = "replica"
	// With it a process's function does nothing but write, with the gated client or another.
	writesVariable = "WRITES"
	gated          = "gated"
	ungated        = "ungated"
)

// What a process says on its output, each with a time before it.
const (
	sayRunning = "running"
	sayTold    = "told"
	sayEnded   = "ended"
	sayWrote   = "wrote"
)

func say(word string) { fmt.Println(time.Now().UnixNano(), word) }

// replicaProcess is a candidate in a process of its own, until SIGTERM. Its run function
// takes DRAIN to return, and then writes once more with the gated client.
func replicaProcess() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := playReplica(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func playReplica(ctx context.Context) error {
	config, err := kube.LoadConfig(kube.Source{Path: os.Getenv("KUBECONFIG")})
	if err != nil {
		return err
	}
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0))
	if err != nil {
		return err
	}
	drain, err := time.ParseDuration(os.Getenv("DRAIN"))
	if err != nil {
		return err
	}
	watcher := revisions.NewDefaultWatcher(client, os.Getenv("REVISION"), os.Getenv("POD_NAMESPACE"))
	go watcher.Run(ctx.Done())
	cfg := leaderelection.Config{
		Namespace: os.Getenv("POD_NAMESPACE"), Identity: os.Getenv("POD_NAME"), ElectionID: election,
		Revision: os.Getenv("REVISION"), Lock: leaderelection.LeaseLock, DefaultWatcher: watcher,
	}
	brisk(&cfg)
	le, err := leaderelection.New(client, cfg)
	if err != nil {
		return err
	}
	if how := os.Getenv(writesVariable); how != "" {
		le.AddRunContext(func(ctx context.Context) error {
			c := le.Client()
			if how == ungated {
				c = client
			}
			return writeOn(ctx, c, &cfg)
		})
		return le.RunContext(ctx)
	}
	le.AddRunContext(func(ctx context.Context) error {
		say(sayRunning)
		defer say(sayEnded)
		<-ctx.Done()
		say(sayTold)
		timer := time.NewTimer(drain)
		defer timer.Stop()
		<-timer.C
		// Not with ctx, which has ended: only the gate can stop this.
		last := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "of-" + cfg.Identity + "-"}}
		if _, err := le.Client().Kube().CoreV1().ConfigMaps(cfg.Namespace).Create(context.WithoutCancel(ctx), last, metav1.CreateOptions{}); err == nil {
			say(sayWrote)
		}
		return nil
	})
	return le.RunContext(ctx)
}

// writeOn makes an object every few milliseconds, and goes on for a moment once it is told to
// stop: as a worker that has not heard of it yet.
func writeOn(ctx context.Context, client kube.Client, cfg *leaderelection.Config) error {
	say(sayRunning)
	defer say(sayEnded)
	term, _ := k8sleaderelection.TermFromContext(ctx)
	token := strconv.FormatUint(term.Token, 10)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "of-" + cfg.Identity + "-",
		Labels:       history.Write{By: cfg.Identity, Run: cfg.Identity + "-" + token, Token: term.Token}.Labels(),
	}}
	told := make(chan struct{})
	context.AfterFunc(ctx, func() {
		say(sayTold)
		close(told)
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for left := 20; left > 0; left-- {
		if ctx.Err() == nil {
			left = 20
		}
		// Not with ctx: only the gate can stop this. It ends within the drain, whatever the API server does.
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, _ = client.Kube().CoreV1().ConfigMaps(cfg.Namespace).Create(callCtx, object, metav1.CreateOptions{}) // a refusal is what the gate is for
		cancel()
		<-tick.C
	}
	<-told
	return nil
}
