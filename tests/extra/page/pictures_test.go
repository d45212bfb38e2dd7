package page

import (
	"bytes"
	"cmp"
	"flag"
	"image/png"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/page"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
)

var pictures = flag.String("pictures", "", "folder for the pictures of the documentation")

// TestPictures takes the pictures of the documentation.
func TestPictures(t *testing.T) {
	b := newBrowser(t)
	for _, p := range []struct {
		name, query string
		crowd       *crowd
		look        look
	}{
		{"page-light", "", server(), look{width: 1280, height: 930}},
		{"page-dark", "", server(), look{width: 1280, height: 930, dark: true}},
		{"page-phone-dark", "?default=canary", server(), look{width: 390, height: 930, phone: true, dark: true}},
		{"page-outage", "?range=all", nil, look{width: 1280, height: 800}},
		{"page-500", "", many(), look{width: 1280, height: 930}},
	} {
		var address string
		switch {
		case p.crowd != nil:
			address = p.crowd.present(t)
		case *pictures == "":
			continue // a cluster takes too long for the other tests
		default:
			address = outage(t)
		}
		tab := open(t, b, address+p.query, p.look)
		until(t, tab, "the page is live", settled)
		picture, err := chromedp.Run(tab.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if size, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || size.Width != int(p.look.width) {
			t.Errorf("%s: %+v, %v", p.name, size, err)
		}
		if err := os.WriteFile(filepath.Join(cmp.Or(*pictures, t.TempDir()), p.name+".png"), picture, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// server returns the elections of a server, and a timeline with two changes of the default revision. They have no effect on the
// elections of one revision.
func server() *crowd {
	c := newCrowd(4)
	for i, is := range []struct {
		name           string
		shared, fenced bool
	}{
		{"istio-namespace-controller-election", true, true}, {"istio-leader", true, false},
		{"istio-gateway-status-leader-stable", false, false}, {"istio-gateway-deployment-stable", false, true},
	} {
		e := &c.all[i]
		e.Name, e.Process.ElectionID, e.Ranked = is.name, is.name, is.shared
		if is.shared {
			e.Lock, e.Transitions = inspect.ConfigMap, 2
		} else {
			e.Candidates[1] = inspect.Candidate{Identity: "pilot-stable-2", Key: "stable", Warm: true, Fit: true}
		}
		if !is.fenced {
			e.Process.Fence = nil
		}
	}
	const handover = 40 * time.Millisecond
	for term, by := range []struct {
		ago       time.Duration
		pod, name string
	}{{4 * time.Minute, "pilot-stable", "stable"}, {3 * time.Minute, "pilot-canary", "canary"}, {time.Minute, "pilot-stable", "stable"}} {
		began := page.Change{At: time.Now().Add(-by.ago), Leader: by.pod, Key: by.name, Transitions: term}
		acts := began
		acts.At, acts.Acting = began.At.Add(handover), true
		for _, e := range c.all {
			if e.Ranked || term == 0 {
				c.past[e.Name] = append(c.past[e.Name], began, acts)
			}
		}
	}
	return c
}

// outage returns the page of a server with two elections after its API server has stopped. Another server follows.
func outage(t *testing.T) string {
	c := cluster.Own(t, cluster.Options{WithoutControllers: true})
	const home = "istio-system"
	client := c.Client(t).Kube()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tag := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: tagging.DefaultTagWebhook(home), Labels: map[string]string{"istio.io/rev": "stable", "istio.io/tag": "default"},
	}}
	if _, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), tag, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{"stable", "canary"} {
		config := bootstrap.Config{
			Config: leaderelection.Config{
				Namespace: home, Identity: "pilot-" + revision, Revision: revision,
				LeaseDuration: 9 * time.Second, RenewDeadline: 6 * time.Second, RetryPeriod: 2 * time.Second,
			},
			Address: "127.0.0.1:0", DisableGatewayAPI: true, CABundle: filepath.Join(t.TempDir(), "none"),
		}
		if revision == "stable" {
			config.DebugAddress = address
		}
		config.RESTConfig = servers.Identity(t, c, config, config.Identity, "")
		servers.Run(t, config)
	}
	shows := func(text string, times int) func() bool {
		return func() bool {
			_, body := harness.Page(t, address, page.Path)
			return strings.Count(body, text) == times
		}
	}
	harness.Until(t, "stable leads both elections, and canary follows", shows(">1 ready<", 2))
	if err := c.APIServer().Stop(); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the page shows the outage", shows(`<span class="state bad">unknown</span></td>`, 2))
	return "http://" + address + page.Path
}

// many returns 500 elections. 71 have no leader, one is on hold, and two are led by another revision.
func many() *crowd {
	c := newCrowd(500)
	for i := range 71 {
		e := &c.all[i*7]
		e.Process.Acting, e.Process.Leading, e.Process.Gate = false, false, "shut"
		if i%3 == 0 {
			e.State, e.Holder, e.Key, e.Revision = inspect.Free, "", "", ""
			for i := range e.Candidates {
				e.Candidates[i].Fit = false
			}
			continue
		}
		e.State, e.Holder, e.Key, e.Revision = inspect.Expired, "pilot-canary", "canary", "canary"
		c.past[e.Name] = []page.Change{
			{At: time.Now().Add(-4 * time.Minute), Leader: "pilot-canary", Key: "canary", Acting: true},
			{At: time.Now().Add(-time.Duration(i) * time.Second), Leader: "pilot-canary", Key: "canary"},
		}
	}
	for i := 1; i < 4; i++ {
		e := &c.all[i]
		e.Process.Leading = false
		e.Holder, e.Key, e.Revision = "pilot-canary", "canary", "canary"
	}
	e := &c.all[1]
	e.Hold = &record.Hold{Holder: e.Holder, Requester: "ann", Reason: "pause", Seconds: 3600}
	c.all[1] = e.With(e.Candidates, k8sleaderelection.DefaultRevision{Revision: "stable", Synced: true})
	return c
}
