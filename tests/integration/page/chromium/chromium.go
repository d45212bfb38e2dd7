// Package chromium opens the elections page in Debian's Chromium, for tests and for the pictures of the documentation.
package chromium

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Install is the command that installs Chromium.
const Install = "apt-get install --no-install-recommends chromium"

// Program returns the path of Chromium.
func Program() (string, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return "", fmt.Errorf("no chromium: %s", Install)
	}
	return path, nil
}

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

// Browser is a running Chromium.
type Browser struct{ ctx context.Context }

// stopTimeout is the maximum time to close a tab or the browser.
const stopTimeout = 20 * time.Second

// Start starts Chromium.
func Start(ctx context.Context) (*Browser, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	// The contexts end with Stop.
	allocator, _ := chromedp.NewExecAllocator(context.WithoutCancel(ctx), options(program)...)
	browser, _ := chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return &Browser{browser}, nil
}

// Stop ends Chromium and waits until it has ended.
func (b *Browser) Stop() error {
	ctx, cancel := context.WithTimeout(b.ctx, stopTimeout)
	defer cancel()
	return chromedp.Cancel(ctx)
}

// Look has the size and the theme of a tab.
type Look struct {
	Width, Height int64
	Dark, Phone   bool
}

// Tab is an open page.
type Tab struct {
	ctx context.Context

	mu       sync.Mutex
	problems []string
	requests []string
}

// Open opens an address in a new tab.
func (b *Browser) Open(address string, look Look) (*Tab, error) {
	ctx, _ := chromedp.NewContext(b.ctx) // ends with Close
	t := &Tab{ctx: ctx}
	if err := chromedp.Listen(ctx, t.record); err != nil {
		return nil, err
	}
	if err := t.Look(look); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", address, err), t.Close())
	}
	return t, nil
}

// Close closes the tab.
func (t *Tab) Close() error {
	ctx, cancel := context.WithTimeout(t.ctx, stopTimeout)
	defer cancel()
	return chromedp.Cancel(ctx)
}

// Look changes the size and the theme.
func (t *Tab) Look(look Look) error {
	theme := "light"
	if look.Dark {
		theme = "dark"
	}
	var as []chromedp.EmulateViewportOption
	if look.Phone {
		as = append(as, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	return chromedp.Do(t.ctx, chromedp.EmulateViewport(look.Width, look.Height, as...),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
			})
			return err
		}))
}

// Do runs actions on the page.
func (t *Tab) Do(steps ...chromedp.Action[chromedp.Void]) error { return chromedp.Do(t.ctx, steps...) }

// Ask returns the value of an expression in the page. If the value is a promise, Ask returns its result.
func Ask[T any](t *Tab, expression string) (T, error) {
	return chromedp.Run(t.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

const pollInterval = 20 * time.Millisecond

// Wait waits until an expression is true, for at most bound.
func (t *Tab) Wait(expression string, bound time.Duration) error {
	_, err := chromedp.Run(t.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(bound), chromedp.WithPollingInterval(pollInterval)))
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", expression, err)
	}
	return nil
}

// Picture returns a screenshot of the page as PNG.
func (t *Tab) Picture() ([]byte, error) { return chromedp.Run(t.ctx, chromedp.CaptureScreenshot()) }

// Problems returns the errors and warnings of the page so far.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.problems)
}

// Requests returns the URLs that the page has requested.
func (t *Tab) Requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.requests)
}

// record stores requests, exceptions, errors and warnings.
func (t *Tab) record(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		t.requests = append(t.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		t.problems = append(t.problems, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			t.problems = append(t.problems, fmt.Sprintf("console: %+v", e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			t.problems = append(t.problems, fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}
