package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

// slice lists addresses at ports; "!" before an address: it is not ready, "?": that is not said.
func slice(ports []discoveryv1.EndpointPort, addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, Ports: ports,
	}
	for _, address := range addresses {
		ready := !strings.HasPrefix(address, "!")
		endpoint := discoveryv1.Endpoint{Addresses: []string{strings.TrimLeft(address, "!?")}}
		if !strings.HasPrefix(address, "?") {
			endpoint.Conditions.Ready = &ready
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	return s
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

func TestAddressesOfASlice(t *testing.T) {
	number := int32(7)
	for name, test := range map[string]struct {
		slice discoveryv1.EndpointSlice
		want  []string
	}{
		"one":             {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "10.0.0.1"), []string{"https://10.0.0.1:6443"}},
		"several":         {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "10.0.0.1", "?fd00::2"), []string{"https://10.0.0.1:6443", "https://[fd00::2]:6443"}},
		"one that stops":  {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "!10.0.0.1", "10.0.0.2"), []string{"https://10.0.0.2:6443"}},
		"another port":    {slice([]discoveryv1.EndpointPort{port("metrics", 1), port("https", 2)}, "10.0.0.1"), []string{"https://10.0.0.1:2"}},
		"no name":         {slice([]discoveryv1.EndpointPort{{Port: &number}}, "10.0.0.1"), []string{"https://10.0.0.1:7"}},
		"an empty name":   {slice([]discoveryv1.EndpointPort{port("", 3)}, "10.0.0.1"), []string{"https://10.0.0.1:3"}},
		"no number":       {slice([]discoveryv1.EndpointPort{{}, port("https", 2)}, "10.0.0.1"), []string{"https://10.0.0.1:2"}},
		"nothing to list": {slice(nil), nil},
	} {
		if got := addressesOf(test.slice); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// apart is an API server that lists others, all of which a test answers for.
func apart(answer func(r *http.Request) (*http.Response, error), listed ...discoveryv1.EndpointSlice) *rest.Config {
	return &rest.Config{Host: "https://10.0.0.1:6443", WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices") {
				return answer(r)
			}
			if r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=kubernetes" {
				return nil, errors.New("the test: these are not all of the Service kubernetes")
			}
			return jsonAnswer(r, discoveryv1.EndpointSliceList{
				TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, Items: listed,
			})
		})
	}}
}

func jsonAnswer(r *http.Request, value any) (*http.Response, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(content)),
	}, nil
}

func hosts(configs []*rest.Config) (all []string) {
	for _, c := range configs {
		all = append(all, c.Host)
	}
	return all
}

func version(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/version" {
		return nil, errors.New("the test: nobody asks for " + r.URL.Path)
	}
	return jsonAnswer(r, map[string]string{"major": "1"})
}

// Which further API servers are asked, and what is said of those that cannot be.
func TestWhichAPIServersAreAsked(t *testing.T) {
	https := []discoveryv1.EndpointPort{port("https", 6443)}
	three := []discoveryv1.EndpointSlice{slice(https, "10.0.0.3", "10.0.0.1"), slice(https, "10.0.0.2", "10.0.0.3")}
	but := func(away string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			if r.URL.Hostname() == away {
				return nil, errAway
			}
			return version(r)
		}
	}
	both := []string{"https://10.0.0.2:6443", "https://10.0.0.3:6443"}
	for name, test := range map[string]struct {
		config *rest.Config
		given  []string
		want   []string
		found  map[string]string // what is said of one that cannot be asked, by its address
	}{
		"all that are listed, once":  {config: apart(version, three...), want: both},
		"nobody besides":             {config: apart(version, slice(https, "10.0.0.1"))},
		"those that are given alone": {config: apart(but("10.0.0.9"), three...), given: []string{"https://10.0.0.9"}, want: []string{"https://10.0.0.9"}},
		"one cannot be reached": {
			config: apart(but("10.0.0.2"), three...), want: both[1:],
			found: map[string]string{both[0]: errAway.Error() + "; run this where it can be reached, or name with --api-server"},
		},
		"the list cannot be had": {
			config: apart(version), found: map[string]string{"https://10.0.0.1:6443": "; name them with --api-server"},
		},
	} {
		if strings.Contains(name, "list cannot") {
			test.config.Wrap(func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(*http.Request) (*http.Response, error) { return nil, errAway })
			})
		}
		client := cluster.ClientFor(t, test.config)
		got, findings := FenceConfig{APIServers: test.given}.apiServers(t.Context(), client)
		if !slices.Equal(hosts(got), test.want) {
			t.Errorf("%s: %q are asked", name, hosts(got))
		}
		for _, c := range got {
			if want := map[bool]string{false: "10.0.0.1"}[len(test.given) > 0]; c.ServerName != want {
				t.Errorf("%s: the certificate of %s is to be for %q", name, c.Host, c.ServerName)
			}
		}
		if len(findings) != len(test.found) {
			t.Errorf("%s: %v", name, findings)
		}
		for _, f := range findings {
			if f.Verdict != install.Undecided || f.What == "" || test.found[f.Server] == "" || !strings.Contains(f.Why, test.found[f.Server]) || !strings.Contains(f.Why, errAway.Error()) {
				t.Errorf("%s: it says %v of %s", name, f, f.Server)
			}
		}
	}
}

// The name that a certificate is for is that of the address that was given.
func TestNameOfTheCertificate(t *testing.T) {
	for name, test := range map[string]struct {
		config rest.Config
		want   string
	}{
		"by the address":  {rest.Config{Host: "https://api.example:6443"}, "api.example"},
		"without a port":  {rest.Config{Host: "api.example"}, "api.example"},
		"as it was given": {rest.Config{Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{ServerName: "given"}}, "given"},
	} {
		if got, err := serverName(&test.config); err != nil || got != test.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := serverName(&rest.Config{Host: "https://%zz"}); err == nil || !strings.Contains(err.Error(), `"https://%zz"`) {
		t.Errorf("an address that is none: %v", err)
	}
}

// An API server that does not answer is waited for so long, and no longer; what it says at
// once is what is said.
func TestReach(t *testing.T) {
	gone := errors.New("the caller is gone")
	silent := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for name, test := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		cancel time.Duration
		took   time.Duration
		want   string
	}{
		"it answers":         {answer: version},
		"it refuses":         {answer: func(*http.Request) (*http.Response, error) { return nil, errAway }, want: errAway.Error()},
		"it does not answer": {answer: silent, took: 5 * time.Second, want: "no answer within 5s"},
		"nobody waits":       {answer: silent, cancel: time.Second, took: time.Second, want: gone.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.cancel > 0 {
					time.AfterFunc(test.cancel, func() { cancel(gone) })
				}
				began := time.Now()
				err := reach(ctx, apart(test.answer))
				if took := time.Since(began); took != test.took || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
	if err := reach(t.Context(), &rest.Config{Host: "https://%zz"}); err == nil {
		t.Error("an address that is none is reached")
	}
}

// How findings are written.
func TestFindingsAreWrittenAsAsked(t *testing.T) {
	findings := []install.Finding{{Server: "s", What: "one", Verdict: install.Holds}, {Server: "s", What: "two", Verdict: install.Fails, Why: "so"}}
	table := "holds    one\nFAILS    two: so\n"
	var indented bytes.Buffer
	raw, err := json.Marshal(findings)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]string{
		"": table, "table": table, "json": indented.String() + "\n",
		"yaml": "- server: s\n  verdict: holds\n  what: one\n- server: s\n  verdict: fails\n  what: two\n  why: so\n",
	} {
		var out bytes.Buffer
		if err := (FenceConfig{Output: output}).print(&out, findings); err != nil || out.String() != want {
			t.Errorf("--output=%s: %v\n%s", output, err, &out)
		}
		if output != "" && output != "table" {
			if err := (FenceConfig{Output: output}).print(broken{}, findings); !errors.Is(err, errAway) {
				t.Errorf("--output=%s: what cannot be written: %v", output, err)
			}
		}
	}
	if err := (FenceConfig{Output: "xml"}).print(io.Discard, findings); err == nil || !strings.Contains(err.Error(), "--output=xml: give table, json or yaml") {
		t.Errorf("an output that there is not: %v", err)
	}
	if err := encode(io.Discard, "json", func() {}); err == nil || !strings.Contains(err.Error(), "--output=json") {
		t.Errorf("what cannot be encoded: %v", err)
	}
}

// broken cannot be written to.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errAway }
