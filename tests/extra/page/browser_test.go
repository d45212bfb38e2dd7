package page

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// options returns the options to run Chromium as root, without a display, and without requests other than those of the
// page.
func options(program string) []chromedp.ExecAllocatorOption {
	all := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck}
	for _, flag := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync",
		"disable-dev-shm-usage", "hide-scrollbars", "enable-automation",
		// Render all tabs, not only the tab in the foreground.
		"disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding",
	} {
		all = append(all, chromedp.Flag(flag, true))
	}
	return all
}

// stop closes a tab or the browser.
func stop(t testing.TB, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	if err := chromedp.Cancel(ctx); err != nil {
		t.Errorf("failed to stop Chromium or a tab: %v", err)
	}
}

// newBrowser starts Chromium and stops it when the test ends. Without Chromium the test is skipped, except in CI.
func newBrowser(t testing.TB) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		harness.Skip(t, "no chromium: apt-get install --no-install-recommends chromium")
	}
	// The contexts end with stop.
	allocator, _ := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options(program)...)
	browser, _ := chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	t.Cleanup(func() { stop(t, browser) })
	return browser
}

// look has the size and the theme of a tab.
type look struct {
	width, height int64
	dark, phone   bool
}

// tab is an open page.
type tab struct {
	ctx context.Context

	mu       sync.Mutex
	problems []string // errors and warnings of the page
	requests []string // URLs
}

// open opens an address in a tab until the test ends. The test fails if the page reported errors.
func open(t testing.TB, browser context.Context, address string, as look) *tab {
	t.Helper()
	p := openUntilClosed(t, browser, address, as)
	t.Cleanup(func() {
		p.checkProblems(t)
		stop(t, p.ctx)
	})
	return p
}

// openUntilClosed opens an address in a tab that the caller stops.
func openUntilClosed(t testing.TB, browser context.Context, address string, as look) *tab {
	t.Helper()
	p := &tab{}
	p.ctx, _ = chromedp.NewContext(browser)
	if err := chromedp.Listen(p.ctx, p.record); err != nil {
		t.Fatal(err)
	}
	p.look(t, as)
	p.do(t, chromedp.Navigate(address))
	return p
}

// look changes the size and the theme.
func (p *tab) look(t testing.TB, as look) {
	t.Helper()
	theme := "light"
	if as.dark {
		theme = "dark"
	}
	var viewport []chromedp.EmulateViewportOption
	if as.phone {
		viewport = append(viewport, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	p.do(t, chromedp.EmulateViewport(as.width, as.height, viewport...),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
			})
			return err
		}))
}

// do runs actions on the page.
func (p *tab) do(t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func (p *tab) checkProblems(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		t.Errorf("the page reported: %s", problem)
	}
}

// until waits until an expression is true in the page.
func until(t testing.TB, p *tab, what, expression string) {
	t.Helper()
	const interval = 20 * time.Millisecond
	_, err := chromedp.Run(p.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(harness.Patience), chromedp.WithPollingInterval(interval)))
	if err != nil {
		t.Fatalf("%s: waiting for %s: %v", what, expression, err)
	}
}

// ask returns the value of an expression in the page. If the value is a promise, ask returns its result.
func ask[T any](t testing.TB, p *tab, expression string) T {
	t.Helper()
	answer, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return answer
}

// record stores requests, exceptions, errors and warnings.
func (p *tab) record(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			p.problems = append(p.problems, fmt.Sprintf("console: %+v", e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.problems = append(p.problems, fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}
