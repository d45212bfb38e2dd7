package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Installed returns the path of a program of Prometheus, or "" if it is not installed. In CI a missing program fails the test.
func Installed(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("no %s: apt-get install --no-install-recommends prometheus", program)
	}
	return path
}

// Server is a running Prometheus.
type Server struct {
	address string
	client  *http.Client
}

// Start runs Prometheus with a configuration until the test ends. It returns when Prometheus is ready.
func Start(t testing.TB, config map[string]any) *Server {
	t.Helper()
	folder := t.TempDir()
	content, err := yaml.Marshal(config)
	harness.Must(t, err)
	file := filepath.Join(folder, "prometheus.yaml")
	harness.Must(t, os.WriteFile(file, content, 0o600))
	s := &Server{address: reserve(t), client: &http.Client{}}
	t.Cleanup(s.client.CloseIdleConnections)
	process := harness.Start(t, "prometheus", nil, Installed(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+s.address, "--log.level=warn")
	harness.Until(t, "Prometheus is ready", func() bool {
		select {
		case <-process.Ended():
			t.Fatal("Prometheus ended")
		default:
		}
		status, _ := harness.Page(t, s.address, "/-/ready")
		return status == http.StatusOK
	})
	return s
}

// reserve returns an address whose port no other process can take: the test keeps the port on another loopback address, so the
// kernel does not give it to a process that listens on any port.
func reserve(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return net.JoinHostPort("127.0.0.2", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
}

// Get reads a path of the API and decodes its data.
func (s *Server) Get(ctx context.Context, path string, values url.Values, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/api/v1/"+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s: %s", path, answer.Status, answer.Error)
	}
	return nil
}

// Series is a series of a response.
type Series struct {
	Metric map[string]string
	// Value has a time and a number as text.
	Value [2]any
}

// Query evaluates an expression now.
func (s *Server) Query(ctx context.Context, expr string) ([]Series, error) {
	var data struct{ Result []Series }
	err := s.Get(ctx, "query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}
