package witness

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/witness"
	"incumbent.dev/incumbent/pkg/kube"
)

// workName and workSize describe the ConfigMap that a leader writes. A relay that stalls has read less than that.
const (
	workName = "work"
	workSize = 200 << 10
)

// candidate runs the test program as a candidate with a parent as its witness, or with the socket in SOCKET. With SERVE it is the
// witness of that socket.
func candidate() {
	if path := os.Getenv("SERVE"); path != "" {
		fmt.Println("ended:", witness.Serve(context.Background(), path, witness.Options{Identity: os.Getenv("CANDIDATE")}))
		os.Exit(1)
	}
	if path := os.Getenv("SOCKET"); path != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("ended:", campaign(ctx, witness.Dial(path, nil)))
		os.Exit(0)
	}
	witness.Main(func(ctx context.Context) error {
		client, err := witness.FromParent()
		if err != nil {
			return err
		}
		return campaign(ctx, client)
	})
}

// campaign leads the election. SIGUSR1 starts the fault in FAULT.
func campaign(ctx context.Context, client *witness.Client) error {
	fault := make(chan os.Signal, 1)
	signal.Notify(fault, syscall.SIGUSR1)
	fmt.Printf("candidate %d\n", os.Getpid())
	access, err := kube.LoadConfig(kube.Source{List: os.Getenv("KUBECONFIG")})
	if err != nil {
		return err
	}
	api, err := kube.NewClient(access)
	if err != nil {
		return err
	}
	kind := map[string]leaderelection.LockType{"configmaps": leaderelection.LockTypeConfigMap}[os.Getenv("LOCK")]
	duration := leaderelection.DefaultLeaseDuration
	if text := os.Getenv("LEASE"); text != "" {
		if duration, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	var predecessor *leaderelection.Predecessor
	if name := os.Getenv("HELD"); name != "" {
		predecessor = &leaderelection.Predecessor{Name: name, Lock: leaderelection.LockTypeConfigMap, Hold: true}
	}
	config := leaderelection.Config{
		Namespace: os.Getenv("NAMESPACE"), ElectionID: election, Identity: os.Getenv("CANDIDATE"), Lock: kind, Predecessor: predecessor,
		LeaseDuration: duration, RenewDeadline: duration / 2, RetryPeriod: duration / 4,
		Witness: client.For("", func() bool { return os.Getenv("FENCED") != "" }),
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	le, err := leaderelection.New(api, config)
	if err != nil {
		return err
	}
	le.AddRunContext(func(ctx context.Context) error {
		fmt.Println("leading")
		select {
		case <-ctx.Done():
			return nil
		case <-fault:
			return die(os.Getenv("FAULT"), api, fault)
		}
	})
	return le.RunContext(ctx)
}

// die ends the process, or waits until the test kills it. more receives further signals of the test.
func die(how string, api kube.Client, more <-chan os.Signal) error {
	switch how {
	case "panic":
		panic("fault")
	case "exit":
		os.Exit(3)
	case "out of memory":
		var all [][]byte
		for range 1024 { // MiB, if nothing limits it
			page := make([]byte, 1<<20)
			for i := range page {
				page[i] = 1
			}
			all = append(all, page)
		}
		fmt.Println(len(all))
	case "held write":
		return write(api, more)
	case "inherited descriptors":
		// It inherits the socket to the witness too.
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, 3, syscall.F_SETFD, 0)
		child := exec.Command("/bin/sleep", "60")
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Printf("orphan %d\n", child.Process.Pid)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		return fmt.Errorf("unknown fault %q", how)
	}
	select {}
}

// write writes a ConfigMap that tells which bytes have arrived. The first write opens the connection.
func write(api kube.Client, more <-chan os.Signal) error {
	client := api.Kube().CoreV1().ConfigMaps(os.Getenv("NAMESPACE"))
	work := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: workName}}
	work, err := client.Create(context.Background(), work, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	fmt.Println("wrote")
	<-more
	work.Data = map[string]string{"late": strings.Repeat("x", workSize)}
	_, err = client.Update(context.Background(), work, metav1.UpdateOptions{})
	return err
}
