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
	"incumbent.dev/incumbent/pilot/page"
)

var pictures = flag.String("pictures", "", "folder for the pictures of the documentation")

// TestPictures takes the pictures of the documentation: the elections of a server, and a timeline with two changes of the default
// revision. They have no effect on the elections of one revision.
func TestPictures(t *testing.T) {
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
	address, b := c.present(t), newBrowser(t)
	for name, as := range map[string]look{"page-light": {width: 1280, height: 930}, "page-phone-dark": {width: 390, height: 930, phone: true, dark: true}} {
		query := ""
		if as.phone {
			query = "?default=canary"
		}
		tab := open(t, b, address+query, as)
		until(t, tab, "the page is live", settled)
		picture, err := chromedp.Run(tab.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if size, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || size.Width != int(as.width) {
			t.Errorf("%s: %+v, %v", name, size, err)
		}
		if err := os.WriteFile(filepath.Join(cmp.Or(*pictures, t.TempDir()), name+".png"), picture, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
