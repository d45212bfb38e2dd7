package kube

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var errRecorded = errors.New("recorded, not sent")

// record is an option that keeps the headers of requests and sends none.
func record(headers *[]http.Header) Option {
	return WithWrapTransport(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			*headers = append(*headers, req.Header)
			return nil, errRecorded
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestNewClientLeavesItsConfigurationAlone(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1", QPS: 3, Burst: 4}
	before := *config
	var headers []http.Header
	c, err := NewClient(config, WithRateLimit(-1, 0), WithUserAgent("x"), WithOwnConnections(), record(&headers))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*config, before) {
		t.Errorf("configuration became %+v", config)
	}
	c.RESTConfig().Host = "elsewhere"
	if got := c.RESTConfig().Host; got != config.Host {
		t.Errorf("host is %q after a caller changed the copy it was given", got)
	}
}

func TestTypedClientSpeaksProtobufAndTheDynamicOneDoesNot(t *testing.T) {
	var headers []http.Header
	c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, record(&headers), WithUserAgent("pilot-test"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kube().CoreV1().Namespaces().Get(t.Context(), "a", metav1.GetOptions{}); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	kind := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := c.Dynamic().Resource(kind).Get(t.Context(), "a", metav1.GetOptions{}); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	if got := headers[0].Get("Accept"); got != protobufOrJSON {
		t.Errorf("typed client accepts %q", got)
	}
	if got := headers[1].Get("Accept"); strings.Contains(got, "protobuf") {
		t.Errorf("dynamic client accepts %q", got)
	}
	if got := headers[0].Get("User-Agent"); got != "pilot-test" {
		t.Errorf("user agent is %q", got)
	}
	if got := c.RESTConfig().ContentType; got != "" {
		t.Errorf("RESTConfig has content type %q", got)
	}
}

func TestBothClientsShareOneLimit(t *testing.T) {
	c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, WithRateLimit(0.001, 1))
	if err != nil {
		t.Fatal(err)
	}
	typed := c.Kube().CoreV1().RESTClient().GetRateLimiter()
	if !typed.TryAccept() {
		t.Fatal("the first request was held back")
	}
	if c.Kube().CoordinationV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Error("another group has a limit of its own")
	}
	unlimited, err := Derive(c, WithRateLimit(-1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if limiter := unlimited.Kube().CoreV1().RESTClient().GetRateLimiter(); limiter != nil {
		for range 1000 {
			if !limiter.TryAccept() {
				t.Fatal("a client without a limit held a request back")
			}
		}
	}
	again, err := Derive(c)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Kube().CoreV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Error("a derived client waits behind the first one's requests")
	}
}

func TestOwnConnections(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	transports := map[http.RoundTripper]bool{}
	for _, opts := range [][]Option{nil, nil, {WithOwnConnections()}, {WithOwnConnections()}} {
		c, err := NewClient(config, opts...)
		if err != nil {
			t.Fatal(err)
		}
		transports[innermost(c.(*client).http.Transport)] = true
	}
	if len(transports) != 3 {
		t.Errorf("four clients, two of them with connections of their own, have %d transports", len(transports))
	}
}

func innermost(rt http.RoundTripper) http.RoundTripper {
	for {
		outer, ok := rt.(interface{ WrappedRoundTripper() http.RoundTripper })
		if !ok {
			return rt
		}
		rt = outer.WrappedRoundTripper()
	}
}

func TestWrongOptions(t *testing.T) {
	for name, test := range map[string]struct {
		config *rest.Config
		opt    Option
		want   string
	}{
		"no configuration": {nil, nil, "no configuration"},
		"no requests":      {&rest.Config{}, WithRateLimit(0, 1), "would stop all work"},
		"no burst":         {&rest.Config{}, WithRateLimit(1, 0), "burst of at least 1"},
		"no wrapper":       {&rest.Config{}, WithWrapTransport(nil), "is nil"},
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
}
