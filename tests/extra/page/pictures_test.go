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

	"incumbent.dev/incumbent/pilot/page"
)

var pictures = flag.String("pictures", "", "folder for the pictures of the documentation")

// TestPictures takes the pictures of the documentation: four elections, and a timeline with two changes of the default revision.
func TestPictures(t *testing.T) {
	c := newCrowd(4)
	for i, name := range []string{"istio-namespace-controller-election", "istio-leader", "istio-gateway-status-leader", "istio-gateway-deployment-stable"} {
		c.all[i].Process.ElectionID, c.all[i].Name, c.all[i].Transitions = name, name, 2
	}
	const handover = 40 * time.Millisecond
	for term, by := range []struct {
		ago       time.Duration
		pod, name string
	}{{4 * time.Minute, "pilot-stable", "stable"}, {3 * time.Minute, "pilot-canary", "canary"}, {time.Minute, "pilot-stable", "stable"}} {
		began := page.Change{At: time.Now().Add(-by.ago), Leader: by.pod, Key: by.name, Transitions: term}
		acts := began
		acts.At, acts.Acting = began.At.Add(handover), true
		c.past = append(c.past, began, acts)
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
