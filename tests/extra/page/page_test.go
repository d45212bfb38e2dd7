package page

import (
	"context"
	_ "embed" // for the script that inspects the page
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/page"
)

var (
	desk  = look{width: 1280, height: 900}
	phone = look{width: 390, height: 844, phone: true}
)

// row selects the row of the first election, leader the identity of its leader.
const (
	row     = `[...document.querySelectorAll("tbody tr")].find(r => r.querySelector(".id")?.textContent === "election-000")`
	leader  = row + `?.querySelector("td .identity")?.textContent`
	settled = `document.getElementById("live").textContent === "live"`
)

// contrasts is a script that lists texts with too little contrast to their background.
//
//go:embed testdata/contrasts.js
var contrasts string

func led(by string) string { return fmt.Sprintf("%s === %q", leader, by) }

// All subtests share one browser.
func TestElectionsPage(t *testing.T) {
	b := newBrowser(t)
	t.Run("shows a handover without reloading", func(t *testing.T) { showsHandover(t, b) })
	t.Run("usable by keyboard, keeps the focus", func(t *testing.T) { keyboard(t, b) })
	t.Run("fits narrow and wide screens, light and dark", func(t *testing.T) { fitsScreens(t, b) })
	t.Run("fits with long names", func(t *testing.T) { fitsLongNames(t, b) })
	t.Run("filters with and without JavaScript", func(t *testing.T) { filters(t, b) })
	t.Run("document equals the rendered page", func(t *testing.T) { merges(t, b) })
	t.Run("reports a stopped server and a lost connection", func(t *testing.T) { lostConnection(t, b) })
}

func showsHandover(t *testing.T, b context.Context) {
	c := newCrowd(2)
	address := c.present(t)
	tab := open(t, b, address, desk)
	until(t, tab, "the page is live", settled)
	until(t, tab, "stable leads", led("pilot-stable"))
	ask[bool](t, tab, `window.sameDocument = true`)
	for _, revision := range []string{"canary", "stable"} {
		c.move(0)
		until(t, tab, "the page shows that "+revision+" leads", led("pilot-"+revision))
	}
	if !ask[bool](t, tab, `window.sameDocument === true`) {
		t.Error("the page was reloaded")
	}
	until(t, tab, "the timeline has marks", `document.querySelectorAll(".strip .mark").length > 0`)
	until(t, tab, "the list contains the handover",
		`[...document.querySelectorAll(".events .what")].some(e => e.textContent.includes("changed from pilot-canary (canary) to pilot-stable (stable)"))`)
	own, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for _, request := range tab.requests {
		if u, err := url.Parse(request); err != nil || u.Host != own.Host {
			t.Errorf("the page requests %s", request)
		}
	}
}

func keyboard(t *testing.T, b context.Context) {
	c := newCrowd(2)
	tab := open(t, b, c.present(t), desk)
	until(t, tab, "the page is live", settled)
	ask[bool](t, tab, `window.sameDocument = true`)
	// Tab reaches every link, summary and control, in document order.
	want := ask[[]string](t, tab, `[...document.querySelectorAll("a[href], summary, input:not([type=hidden]), select, button")].map(e => e.textContent.trim())`)
	var got []string
	for range want {
		press(t, tab, kb.Tab)
		got = append(got, ask[string](t, tab, `document.activeElement.textContent.trim()`))
	}
	if !slices.Equal(got, want) || strings.Count(strings.Join(got, "\n"), "1 ready") != 2 {
		t.Errorf("Tab reaches %q, want %q", got, want)
	}
	if outline := ask[string](t, tab, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
		t.Error("the focused element has no outline")
	}
	ask[bool](t, tab, `(`+row+`.querySelector("summary").focus(), true)`)
	const followers = row + `.nextElementSibling.getBoundingClientRect().height`
	if ask[float64](t, tab, followers) > 0 {
		t.Error("the followers are not hidden")
	}
	press(t, tab, kb.Enter)
	until(t, tab, "Enter opens the followers", row+`.querySelector("details").open && `+followers+` > 10`)
	c.move(0)
	until(t, tab, "the page shows canary", led("pilot-canary"))
	if !ask[bool](t, tab, `document.activeElement === `+row+`.querySelector("summary") && `+row+`.querySelector("details").open`) {
		t.Error("the handover moved the focus or closed the details")
	}
	c.move(0)
	until(t, tab, "the page shows stable again", led("pilot-stable"))

	const hour = `document.querySelector("nav a[href='?range=1h']")`
	ask[bool](t, tab, `(`+hour+`.focus(), true)`)
	press(t, tab, kb.Enter)
	until(t, tab, "the timeline shows an hour", hour+`.getAttribute("aria-current") === "true" && location.search === "?range=1h"`)
	if !ask[bool](t, tab, `document.activeElement === `+hour+` && window.sameDocument`) {
		t.Error("the change of the range moved the focus or reloaded the page")
	}
	tab.do(t, chromedp.NavigateBack())
	until(t, tab, "the back button restores five minutes", `document.querySelector("nav[aria-label='Range of the timeline'] a[aria-current]")?.textContent === "5 min"`)
	const canary = `document.querySelector("nav a[href$='default=canary']")`
	ask[bool](t, tab, `(`+canary+`.focus(), true)`)
	press(t, tab, kb.Enter)
	until(t, tab, "the page shows the preview", `document.querySelector(".if")?.textContent.includes("2 of 2 elections would change leaders")`)
}

func press(t *testing.T, tab *tab, key string) {
	t.Helper()
	tab.do(t, chromedp.KeyEvent(key))
}

func fitsScreens(t *testing.T, b context.Context) {
	c := newCrowd(4)
	c.all[1].Process.Fence, c.all[1].Problems, c.all[1].Cluster = &fence.State{Answer: fence.Admitted}, []string{"first holds the configmap"}, "remote"
	c.all[2].Hold = &record.Hold{Requester: "ann", Reason: "pause", Seconds: 60}
	c.all[2] = c.all[2].With(append(c.all[2].Candidates, inspect.Candidate{Identity: "pilot-new", Key: "^canary"}), k8sleaderelection.DefaultRevision{})
	c.all[3].State, c.all[3].Holder, c.all[3].Process.Acting, c.all[3].Process.Leading, c.all[3].Candidates = inspect.Free, "", false, false, nil
	backgrounds := map[string]bool{}
	tab := open(t, b, c.present(t)+"?default=canary", desk)
	until(t, tab, "the page is live", settled)
	for _, look := range []look{desk, {width: 820, height: 1100}, phone, {width: 320, height: 700, phone: true}} {
		for _, dark := range []bool{false, true} {
			look.dark = dark
			tab.look(t, look)
			until(t, tab, "the page has the width and theme", fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: dark)').matches === %t", look.width, dark))
			ask[int](t, tab, `(document.querySelectorAll("details").forEach(d => d.open = true), 0)`)
			if wide := ask[int](t, tab, `document.documentElement.scrollWidth`); wide > int(look.width) {
				t.Errorf("%+v: the page is %d wide", look, wide)
			}
			if cut := ask[[]string](t, tab, `[...document.querySelectorAll("td, th, dd, .bar, .lane, .events li")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.textContent.trim())`); len(cut) > 0 {
				t.Errorf("%+v: elements are cut off: %q", look, cut)
			}
			if faint := ask[[]string](t, tab, contrasts); len(faint) > 0 {
				t.Errorf("%+v: too little contrast:\n%s", look, strings.Join(faint, "\n"))
			}
			backgrounds[ask[string](t, tab, `getComputedStyle(document.body).backgroundColor`)] = true
		}
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark have the backgrounds %v", backgrounds)
	}
}

// At each width, the page is not wider than the window, and no tile or cell is a column of single words.
func fitsLongNames(t *testing.T, b context.Context) {
	c := newCrowd(3)
	revision := func(i int) string { return strings.Repeat(fmt.Sprint("revision-", i, "-"), 6)[:63] }
	for i := range c.all {
		e := &c.all[i]
		e.Name += "-" + strings.Repeat("long-", 20)
		e.Process.ElectionID = e.Name
		e.Holder, e.Key, e.Revision = "pilot-"+revision(i)+"-5599d85bc4-qz9hp", revision(i), revision(i)
		e.Candidates = []inspect.Candidate{{Identity: e.Holder, Key: e.Key}, {Identity: "other-" + e.Holder, Key: revision(0), Warm: true, Fit: true}}
		c.past[e.Name] = []page.Change{{At: time.Now().Add(-time.Minute), Leader: "other-" + e.Holder, Key: revision(0), Acting: true}}
	}
	c.all[0].State, c.all[0].Process.Acting, c.all[0].Process.Leading = inspect.Expired, false, false
	c.all[1].Hold = &record.Hold{Requester: "ann", Reason: "pause", Seconds: 60}
	c.all[1] = c.all[1].With(c.all[1].Candidates, k8sleaderelection.DefaultRevision{})
	tab := open(t, b, c.present(t)+"?default="+revision(1), desk)
	until(t, tab, "the page is live", settled)
	for _, width := range []int64{360, 800, 1100, 1400} {
		tab.look(t, look{width: width, height: 900})
		until(t, tab, "the page has the width", fmt.Sprintf("innerWidth === %d", width))
		ask[int](t, tab, `(document.querySelectorAll("details").forEach(d => d.open = true), 0)`)
		if wide := ask[int64](t, tab, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("at a width of %d the page is %d wide", width, wide)
		}
		if cut := ask[[]string](t, tab, `[...document.querySelectorAll("td, tbody th, td > *, tbody th > *, dd, dd > *, nav a, .lane, .events li, .events span")].filter(e => { const r = e.getBoundingClientRect(); return r.right > innerWidth + 1 || e.matches("td, th, dd") && r.width && r.width < 60; }).map(e => e.textContent.trim())`); len(cut) > 0 {
			t.Errorf("at a width of %d, elements are cut off or crushed: %q", width, cut)
		}
		if narrow := ask[[]string](t, tab, `[...document.querySelectorAll(".followers li")].filter(e => e.getBoundingClientRect().width < Math.min(600, innerWidth - 60)).map(e => e.textContent)`); len(narrow) > 0 {
			t.Errorf("at a width of %d, followers are crushed or hidden: %q", width, narrow)
		}
		if high := ask[float64](t, tab, `Math.max(...[...document.querySelectorAll(".tiles > div")].map(e => e.getBoundingClientRect().height))`); high > 130 {
			t.Errorf("at a width of %d, a tile is %.0f high", width, high)
		}
		if hidden := ask[[]string](t, tab, `[...document.querySelectorAll(".strip")].filter(e => e.getBoundingClientRect().width < 100).map(e => e.textContent)`); len(hidden) > 0 {
			t.Errorf("at a width of %d, the timeline is crushed", width)
		}
	}
	if title := ask[string](t, tab, leaderOf(c.all[0].Name)+`.title`); title != c.all[0].Holder {
		t.Errorf("the title of a shortened name is %q", title)
	}
}

// leaderOf selects the identity of the leader of an election.
func leaderOf(election string) string {
	return fmt.Sprintf(`document.getElementById("e-.istio-system.Lease.%s").querySelector("td .identity")`, election)
}

// The form works without a script. With it, the page follows changes of the selected rows and keeps a typed text.
func filters(t *testing.T, b context.Context) {
	c := newCrowd(30)
	address := c.present(t)
	tab := open(t, b, address, desk)
	until(t, tab, "the page is live", settled)
	ask[bool](t, tab, `window.sameDocument = true`)
	const names = `[...document.querySelectorAll("tbody .id")].map(e => e.textContent).join()`
	c.move(3, 5, 14)
	until(t, tab, "three leaders are marked", `document.querySelectorAll(".off").length === 3`)
	const input = `document.querySelector("input[name=name]")`
	ask[bool](t, tab, `(document.querySelector("select[name=revision]").value = "canary", `+input+`.focus(), true)`)
	tab.do(t, chromedp.KeyEvent("election-0"))
	press(t, tab, kb.Enter)
	until(t, tab, "the filter selects the leaders of canary", names+` === "election-003,election-005,election-014"`)
	if query := ask[string](t, tab, `location.search`); query != "?name=election-0&revision=canary" {
		t.Errorf("the filter is in the URL %q", query)
	}
	tab.do(t, chromedp.KeyEvent("1"))
	c.move(5)
	until(t, tab, "the page shows the change", names+` === "election-003,election-014"`)
	c.move(21)
	until(t, tab, "the page shows another row", names+` === "election-003,election-014,election-021"`)
	if !ask[bool](t, tab, `document.activeElement === `+input+` && `+input+`.value === "election-01" && window.sameDocument`) {
		t.Error("a change moved the focus, changed the typed text or reloaded the page")
	}
	press(t, tab, kb.Enter)
	until(t, tab, "the filter uses the text", names+` === "election-014"`)
	tab.do(t, chromedp.NavigateBack())
	until(t, tab, "the back button restores the filter", names+` === "election-003,election-014,election-021"`)

	plain := open(t, b, "about:blank", desk)
	plain.do(t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}), chromedp.Navigate(address+"?range=1h"))
	ask[bool](t, plain, `(`+input+`.focus(), true)`)
	plain.do(t, chromedp.KeyEvent("election-01"))
	press(t, plain, kb.Enter)
	harness.Until(t, "the browser sends the form", func() bool {
		const sent = `location.search === "?range=1h&name=election-01&revision=&state=" && document.querySelectorAll("tbody .id").length === 10`
		done, err := chromedp.Run(plain.ctx, chromedp.Evaluate[bool](sent)) // fails while the browser opens the new page
		return err == nil && done
	})
}

// drawn is the content of the document, sent the content that the server renders. Both omit the elapsed share of the
// validity, which differs.
const (
	fixed = `.replace(/ over-\d+"/g, '"')`
	drawn = `document.querySelector("main").outerHTML` + fixed
	sent  = `fetch(location.href).then(r => r.text()).then(html => new DOMParser().parseFromString(html, "text/html").querySelector("main").outerHTML` + fixed + `)`
)

// The page merges only the differences between frames. After each change the document equals a newly loaded page.
func merges(t *testing.T, b context.Context) {
	c := newCrowd(30)
	for i := range c.until { // without renewals, a frame lasts for seconds, so that its document can be compared
		c.until[i] = time.Now().Add(time.Hour)
	}
	tab := open(t, b, c.present(t), desk)
	until(t, tab, "the page is live", settled)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"one leader changes", func() { c.move(3) }},
		{"five leaders change", func() { c.move(0, 7, 14, 21, 28) }},
		{"one election is removed", func() { c.drop(4) }},
		{"another leader changes", func() { c.move(4) }},
		{"the first election is removed", func() { c.drop(0) }},
		{"the first election returns", c.back},
		{"the leader of the first election changes", func() { c.move(0) }},
	} {
		step.do()
		terms := 0
		for _, e := range c.state().Elections {
			terms += e.Transitions
		}
		until(t, tab, step.name+": the document is up to date", fmt.Sprintf(`document.querySelectorAll("tbody tr.row").length === %d && `, len(c.state().Elections))+
			fmt.Sprintf(`[...document.querySelectorAll("tbody .number")].reduce((sum, n) => sum + +n.textContent, 0) === %d && `, terms)+
			`(() => { `+sent+`.then(s => { window.alike = s === `+drawn+`; }); return window.alike === true; })()`)
		ask[bool](t, tab, `(window.alike = false, true)`)
	}
}

// A stopped process keeps its connections open but sends no frames.
func lostConnection(t *testing.T, b context.Context) {
	const grey = `getComputedStyle(document.querySelector("main")).filter === "grayscale(1)"`
	var page *tab
	t.Run("server", func(t *testing.T) {
		c := newCrowd(2)
		page = openUntilClosed(t, b, c.present(t), desk)
		until(t, page, "the page is live", settled+" && !("+grey+")")
		func() {
			c.mu.Lock() // the page cannot read its source
			defer c.mu.Unlock()
			until(t, page, "the page is grey and shows its age", grey+` && /^no update for \d{2,} s$/.test(document.getElementById("live").textContent) && document.getElementById("live").className === "down"`)
		}()
		until(t, page, "the page is live again", settled+" && !("+grey+")")
		page.checkProblems(t)
		// The page shows the first text only until its content is outdated, and the server needs time to stop.
		ask[int](t, page, `(window.shown = [], new MutationObserver(() => shown.push(document.getElementById("live").textContent))
			.observe(document.getElementById("live"), { subtree: true, childList: true, characterData: true }), 0)`)
	}) // the server stops here
	until(t, page, "the page reports the lost connection", `window.shown.includes("disconnected; retrying")`)
	until(t, page, "the page shows its age", `/^disconnected; no update for \d{2,} s$/.test(document.getElementById("live").textContent)`)
	stop(t, page.ctx)
}
