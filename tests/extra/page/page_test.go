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

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
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
	// Tab reaches every link and every summary, in document order.
	want := ask[[]string](t, tab, `[...document.querySelectorAll("a[href], summary")].map(e => e.textContent.trim())`)
	var got []string
	for range want {
		press(t, tab, kb.Tab)
		got = append(got, ask[string](t, tab, `document.activeElement.textContent.trim()`))
	}
	if !slices.Equal(got, want) || strings.Count(strings.Join(got, "\n"), "1, 1 ready") != 2 {
		t.Errorf("Tab reaches %q, want %q", got, want)
	}
	if outline := ask[string](t, tab, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
		t.Error("the focused element has no outline")
	}
	ask[bool](t, tab, `(`+row+`.querySelector("summary").focus(), true)`)
	press(t, tab, kb.Enter)
	until(t, tab, "Enter opens the followers", row+`.querySelector("details").open`)
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
		until(t, tab, step.name+": the document is up to date", fmt.Sprintf(`document.querySelectorAll("tbody tr").length === %d && `, len(c.state().Elections))+
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
