package kube

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

var errRecorded = errors.New("recorded, not sent")

// record returns an option that stores the headers of requests and sends none.
func record(headers *[]http.Header) Option {
	return WithWrapTransport(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			*headers = append(*headers, req.Header)
			return nil, errRecorded
		})
	})
}

type roundTripper = harness.RoundTripper

func TestClient_ContentTypes(t *testing.T) {
	var headers []http.Header
	c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, record(&headers), WithUserAgent("pilot-test"))
	harness.Must(t, err)
	if _, err := c.Kube().CoreV1().Namespaces().Get(t.Context(), "a", metav1.GetOptions{}); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	kind := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := c.Dynamic().Resource(kind).Get(t.Context(), "a", metav1.GetOptions{}); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	if got := headers[0].Get("Accept"); got != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("typed client accepts %q", got)
	}
	if got := headers[1].Get("Accept"); strings.Contains(got, "protobuf") {
		t.Errorf("dynamic client accepts %q", got)
	}
	if _, err := c.Kube().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{}, metav1.CreateOptions{}); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	if got := headers[2].Get("Content-Type"); got != "application/vnd.kubernetes.protobuf" {
		t.Errorf("typed client sends %q", got)
	}
	if got := headers[0].Get("User-Agent"); got != "pilot-test" {
		t.Errorf("user agent is %q", got)
	}
	if got := c.RESTConfig().ContentType; got != "" {
		t.Errorf("RESTConfig has content type %q", got)
	}
}

// Derived clients and clients made from RESTConfig share the limit. A client with another limit does not.
func TestDerive_SharesLimit(t *testing.T) {
	c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, WithRateLimit(0.001, 1))
	harness.Must(t, err)
	typed := c.Kube().CoreV1().RESTClient().GetRateLimiter()
	if !typed.TryAccept() {
		t.Fatal("the first request was held back")
	}
	if c.Kube().CoordinationV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Error("another group has a limit of its own")
	}
	unlimited, err := Derive(c, WithRateLimit(-1, 0))
	harness.Must(t, err)
	if limiter := unlimited.Kube().CoreV1().RESTClient().GetRateLimiter(); limiter != nil {
		for range 1000 {
			if !limiter.TryAccept() {
				t.Fatal("a client without a limit held a request back")
			}
		}
	}
	again, err := Derive(c, WithUserAgent("again"))
	harness.Must(t, err)
	made, err := kubernetes.NewForConfig(again.RESTConfig())
	harness.Must(t, err)
	for what, limiter := range map[string]flowcontrol.RateLimiter{
		"a derived client": again.Kube().CoreV1().RESTClient().GetRateLimiter(), "what is made of its configuration": made.AppsV1().RESTClient().GetRateLimiter(),
	} {
		if limiter != typed {
			t.Errorf("%s has a limit of its own", what)
		}
	}
	own, err := Derive(c, WithRateLimit(0.001, 1))
	harness.Must(t, err)
	if !own.Kube().CoreV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Error("a client with a limit of its own waits behind others' requests")
	}
}

func TestOptions_Invalid(t *testing.T) {
	for name, test := range map[string]struct {
		config *rest.Config
		opt    Option
		want   string
	}{
		"no configuration": {nil, nil, "no configuration"},
		"no requests":      {&rest.Config{}, WithRateLimit(0, 1), "stops all requests"},
		"no burst":         {&rest.Config{}, WithRateLimit(1, 0), "burst of at least 1"},
		"no wrapper":       {&rest.Config{}, WithWrapTransport(nil), "is nil"},
		"wrong address":    {&rest.Config{Host: "http://[::1"}, nil, "the dynamic client: "},
		"burst in config":  {&rest.Config{QPS: 2}, nil, "burst of at least 1"},
		"no such CA":       {&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/no/such/ca"}}, nil, "/no/such/ca"},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []Option
			if test.opt != nil {
				opts = append(opts, test.opt)
			}
			if _, err := NewClient(test.config, opts...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := Derive(nil); err == nil {
		t.Error("a client was derived from none")
	}
	c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	if derived, err := Derive(c, WithRateLimit(0, 1)); err == nil || derived != nil {
		t.Errorf("derived with a wrong option: %v", err)
	}
}

// memory is a client without a server.
type memory struct {
	Client
	set kubernetes.Interface
}

func (m memory) Kube() kubernetes.Interface { return m.set }

// another REST client, which may have a server.
type foreign struct {
	kubernetes.Interface
	typedcore.CoreV1Interface
}

func (f foreign) CoreV1() typedcore.CoreV1Interface { return f }
func (foreign) RESTClient() rest.Interface          { return nil }

func TestInMemory(t *testing.T) {
	real, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	none := memory{set: fake.NewClientset()}
	for name, test := range map[string]struct {
		client Client
		want   bool
	}{
		"a fake clientset":      {none, true},
		"a server's":            {real, false},
		"none":                  {nil, false},
		"one without clientset": {memory{}, false},
		"a user's":              {memory{set: foreign{}}, false},
	} {
		if got := InMemory(test.client); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if derived, err := Derive(none, WithUserAgent("a")); err != nil || derived != Client(none) {
		t.Errorf("derived %v, %v", derived, err)
	}
	CloseIdleConnections(none) // it has no connections
}
