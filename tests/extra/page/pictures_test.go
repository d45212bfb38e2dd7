package page

import (
	"bytes"
	"cmp"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/page"
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
		{"page-outage", "", outage(), look{width: 1280, height: 800}},
		{"page-500", "", many(), look{width: 1280, height: 930}},
	} {
		tab := open(t, b, p.crowd.present(t)+p.query, p.look)
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

// outage returns the elections of a server whose API server does not respond.
func outage() *crowd {
	c := server()
	for i := range c.all {
		e := &c.all[i]
		c.past[e.Name] = append(c.past[e.Name], page.Change{At: time.Now().Add(-25 * time.Second), Leader: e.Holder, Key: e.Key, Transitions: e.Transitions})
		e.State = inspect.Unread
		e.Process.Acting, e.Process.Leading, e.Process.Phase, e.Process.Gate = false, false, "following", "shut"
		e.Process.Failed = "dial tcp 10.96.0.1:443: connect: connection refused"
	}
	return c
}

// many returns 500 elections. 71 have no leader, one is on hold, and two are led by another revision.
func many() *crowd {
	c := newCrowd(500)
	for i := range 71 {
		e := &c.all[i*7]
		e.Process.Acting, e.Process.Leading = false, false
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
