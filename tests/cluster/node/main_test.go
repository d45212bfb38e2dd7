package node_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// roleVariable makes the test program the process of a Pod.
const roleVariable = "NODE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(replica())
	}
	cluster.Main(m, cluster.Options{})
}

// replica is the process of a Pod. It serves its readiness and environment until SIGTERM.
func replica() int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/args", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Args[1:], "\n"))
	})
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("POD_IP"), "8080"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("serving as", os.Getenv("POD_NAME"))
	go func() {
		<-terminated
		listener.Close()
	}()
	err = http.Serve(listener, mux)
	fmt.Println("ended:", err)
	return 0
}
