package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// Whether the default revision is the server's own is said, by its name.
func TestTheServersRevisionIsKnownToItsWatcher(t *testing.T) {
	for revision, ours := range map[string]string{"stable": "ours=true", "canary": "ours=false"} {
		synctest.Test(t, func(t *testing.T) {
			config, text := goodConfig(), &harness.Log{}
			config.Revision = revision
			config.Logger = slog.New(slog.NewTextHandler(text, nil))
			config.RESTConfig = answered(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/mutatingwebhookconfigurations") || r.URL.Query().Get("watch") != "" {
					return nil, errAway
				}
				return jsonAnswer(r, admissionv1.MutatingWebhookConfigurationList{
					TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfigurationList"},
					ListMeta: metav1.ListMeta{ResourceVersion: "5"},
					Items: []admissionv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{
						Name: revisions.DefaultTagWebhook(""), ResourceVersion: "4", Labels: map[string]string{"istio.io/rev": "stable"},
					}}},
				})
			})
			s, err := newServer(config, newController().rows())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.sites()[0].watch(ctx) }()
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if text.Count("default revision", "revision=stable", ours) != 1 {
				t.Errorf("of %s it says\n%s", revision, text)
			}
		})
	}
}

// A server that is told to stop knows that it stops, and closes its controllers, once each; so does
// one that cannot listen, which ends with the reason.
func TestTheEndOfAServer(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, test := range map[string]struct {
		address, wrong string
		closed         bool
	}{
		"told to stop":  {"127.0.0.1:0", "", true},
		"cannot listen": {taken.Addr().String(), "give another --address", false}, // nothing was started
	} {
		config, text := goodConfig(), &harness.Log{}
		config.Address, config.DisableElections = test.address, true
		config.Logger = slog.New(slog.NewTextHandler(text, nil))
		config.RESTConfig = answered(func(*http.Request) (*http.Response, error) { return nil, errAway })
		c := newController()
		s, err := newServer(config, c.rows())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		if test.wrong == "" {
			<-c.began
			cancel(errors.New("says the test"))
		}
		err = <-ended
		cancel(nil)
		if (err == nil) != (test.wrong == "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || !strings.Contains(err.Error(), "server pilot-a: ")) {
			t.Errorf("%s: it ended with %v", name, err)
		}
		if c.closed != test.closed || !errors.Is(s.ready(), errStopping) {
			t.Errorf("%s: its controller is closed: %v, ready: %v", name, c.closed, s.ready())
		}
		if n := text.Count("server has ended"); (n == 1) != (test.wrong == "") {
			t.Errorf("%s: it says\n%s", name, text)
		}
		if test.wrong == "" && text.Count("stopping", "says the test") != 1 {
			t.Errorf("%s: it does not say why\n%s", name, text)
		}
	}
}

// What keeps a process informed, and tells of it, has a client of its own that nothing limits: no burst
// of work holds it up.
func TestWhoHasWhichClient(t *testing.T) {
	config := goodConfig()
	config.QPS, config.Burst = 3, 4
	s, err := newServer(config, newController().rows())
	if err != nil {
		t.Fatal(err)
	}
	at := s.sites()[0]
	for what, client := range map[string]kube.Client{"Events": at.events.client, "the look-out for other locks": at.others.client} {
		if client != at.own {
			t.Errorf("%s has another client", what)
		}
	}
	if own, work := at.own.RESTConfig(), at.work.RESTConfig(); own.QPS >= 0 || work.QPS != 3 || work.Burst != 4 || own.UserAgent != userAgent || work.UserAgent != userAgent {
		t.Errorf("limits are %v, and %v, %d of %q and %q", own.QPS, work.QPS, work.Burst, own.UserAgent, work.UserAgent)
	}
}
