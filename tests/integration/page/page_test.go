package page

import (
	_ "embed" // for what looks at the page from inside
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/integration/page/chromium"
)

var (
	desk  = chromium.Look{Width: 1280, Height: 900}
	phone = chromium.Look{Width: 390, Height: 844, Phone: true}
)

// row is the watched election's row, and leader who leads it by the page.
const (
	row     = `[...document.querySelectorAll("tbody tr")].find(r => r.querySelector(".id")?.textContent === "` + watched + `")`
	leader  = row + `?.querySelector("td .identity")?.textContent`
	settled = `document.getElementById("live").textContent === "live"`
)

// contrasts lists texts that stand out too little from what is behind them.
//
//go:embed testdata/contrasts.js
var contrasts string

func led(by string) string { return fmt.Sprintf("%s === %q", leader, by) }

// One control plane and one browser are enough for all of it.
func TestElectionsPageInABrowser(t *testing.T) {
	p, b := newPlane(t), newBrowser(t)
	t.Run("it shows who leads, and asks nobody else", func(t *testing.T) { shows(t, p, b) })
	t.Run("it follows a flip without being loaded anew", func(t *testing.T) { follows(t, p, b) })
	t.Run("the keyboard is enough, and focus stays", func(t *testing.T) { keys(t, p, b) })
	t.Run("it fits a telephone and a desk, light and dark", func(t *testing.T) { fits(t, p, b) })
	t.Run("what is drawn of many is what is sent", func(t *testing.T) { many(t, b) })
	t.Run("it says when the server is gone", func(t *testing.T) { gone(t, b) })
}

func shows(t *testing.T, p *plane, b *chromium.Browser) {
	tab := open(t, b, p.pages["stable"], desk)
	until(t, tab, "it is live", settled)
	until(t, tab, "stable leads", led("pilot-stable"))
	until(t, tab, "canary follows", row+`.querySelector("summary")?.textContent === "1, 1 ready"`)
	if title := ask[string](t, tab, "document.title"); title != "Elections · pilot-stable" {
		t.Errorf("the title is %q", title)
	}
	if n := ask[int](t, tab, `document.querySelectorAll("tbody tr").length`); n != 2 {
		t.Errorf("it shows %d elections, of 2", n)
	}
	own, err := url.Parse(p.pages["stable"])
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range tab.Requests() {
		if u, err := url.Parse(request); err != nil || u.Host != own.Host {
			t.Errorf("it asks for %s", request)
		}
	}
}

func follows(t *testing.T, p *plane, b *chromium.Browser) {
	tabs := map[string]*chromium.Tab{}
	for _, revision := range revisions {
		tabs[revision] = open(t, b, p.pages[revision], desk)
		until(t, tabs[revision], "it is live", settled)
		ask[bool](t, tabs[revision], `window.sameDocument = true`)
	}
	for _, revision := range []string{"canary", "stable"} {
		p.flip(t, revision)
		for at, tab := range tabs {
			until(t, tab, "the page of "+at+" shows that "+revision+" leads", led("pilot-"+revision))
			if !ask[bool](t, tab, `window.sameDocument === true`) {
				t.Errorf("the page of %s was loaded anew", at)
			}
		}
	}
	for at, tab := range tabs {
		until(t, tab, "the timeline of "+at+" has marks", `document.querySelectorAll(".strip .mark").length > 0`)
		until(t, tab, "the list of "+at+" tells of the flip",
			`[...document.querySelectorAll(".events .what")].some(e => e.textContent.includes("changed from pilot-canary (canary) to pilot-stable (stable)"))`)
	}
}

func keys(t *testing.T, p *plane, b *chromium.Browser) {
	tab := open(t, b, p.pages["stable"], desk)
	until(t, tab, "it is live", settled)
	until(t, tab, "there are followers to open", row+`?.querySelector("details")`)
	ask[bool](t, tab, `window.sameDocument = true`)
	// Every link and every summary is reached, in the order in which they stand there.
	want := ask[[]string](t, tab, `[...document.querySelectorAll("a[href], summary")].map(e => e.textContent.trim())`)
	var got []string
	for range want {
		press(t, tab, kb.Tab)
		got = append(got, ask[string](t, tab, `document.activeElement.textContent.trim()`))
	}
	if !slices.Equal(got, want) {
		t.Errorf("Tab goes through %q, want %q", got, want)
	}
	if outline := ask[string](t, tab, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
		t.Error("one cannot see what has the focus")
	}
	ask[bool](t, tab, `(`+row+`.querySelector("summary").focus(), true)`)
	press(t, tab, kb.Enter)
	until(t, tab, "Enter opens the followers", row+`.querySelector("details").open`)
	p.flip(t, "canary")
	until(t, tab, "the page follows", led("pilot-canary"))
	if !ask[bool](t, tab, `document.activeElement === `+row+`.querySelector("summary") && `+row+`.querySelector("details").open`) {
		t.Error("after the flip the focus is elsewhere, or what was open is shut")
	}
	p.flip(t, "stable")
	until(t, tab, "the page follows back", led("pilot-stable"))

	const hour = `document.querySelector("nav a[href='?range=1h']")`
	ask[bool](t, tab, `(`+hour+`.focus(), true)`)
	press(t, tab, kb.Enter)
	until(t, tab, "the timeline shows an hour", hour+`.getAttribute("aria-current") === "true" && location.search === "?range=1h"`)
	if !ask[bool](t, tab, `document.activeElement === `+hour+` && window.sameDocument`) {
		t.Error("another range has taken the focus away, or loaded the page anew")
	}
	if err := tab.Do(chromedp.NavigateBack()); err != nil {
		t.Fatal(err)
	}
	until(t, tab, "back shows five minutes", `document.querySelector("nav[aria-label='Range of the timeline'] a[aria-current]")?.textContent === "5 min"`)
	const canary = `document.querySelector("nav a[href$='default=canary']")`
	ask[bool](t, tab, `(`+canary+`.focus(), true)`)
	press(t, tab, kb.Enter)
	until(t, tab, "what would be is said", `document.querySelector(".if")?.textContent.includes("2 of 2 elections would change leaders")`)
}

func press(t *testing.T, tab *chromium.Tab, key string) {
	t.Helper()
	if err := tab.Do(chromedp.KeyEvent(key)); err != nil {
		t.Fatal(err)
	}
}

func fits(t *testing.T, p *plane, b *chromium.Browser) {
	grounds := map[string]bool{}
	tab := open(t, b, p.pages["stable"]+"?default=canary", desk)
	until(t, tab, "it is live", settled)
	until(t, tab, "stable leads", led("pilot-stable"))
	for _, look := range []chromium.Look{desk, {Width: 820, Height: 1100}, phone, {Width: 320, Height: 700, Phone: true}} {
		for _, dark := range []bool{false, true} {
			look.Dark = dark
			if err := tab.Look(look); err != nil {
				t.Fatal(err)
			}
			until(t, tab, "it has that width", fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: dark)').matches === %t", look.Width, dark))
			ask[int](t, tab, `(document.querySelectorAll("details").forEach(d => d.open = true), 0)`)
			if wide := ask[int](t, tab, `document.documentElement.scrollWidth`); wide > int(look.Width) {
				t.Errorf("%+v: it is %d wide", look, wide)
			}
			if cut := ask[[]string](t, tab, `[...document.querySelectorAll("td, th, dd, .bar, .lane, .events li")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.textContent.trim())`); len(cut) > 0 {
				t.Errorf("%+v: these are cut off: %q", look, cut)
			}
			if faint := ask[[]string](t, tab, contrasts); len(faint) > 0 {
				t.Errorf("%+v: hard to read:\n%s", look, strings.Join(faint, "\n"))
			}
			grounds[ask[string](t, tab, `getComputedStyle(document.body).backgroundColor`)] = true
		}
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark have the grounds %v", grounds)
	}
}

// drawn is the page as it is, and sent as it would be were it loaded anew: but for what has passed of a cover, the same.
const (
	told  = `.replace(/ over-\d+"/g, '"')`
	drawn = `document.querySelector("main").outerHTML` + told
	sent  = `fetch(location.href).then(r => r.text()).then(html => new DOMParser().parseFromString(html, "text/html").querySelector("main").outerHTML` + told + `)`
)

// Only what differs from one frame to the next is parsed and drawn. Whatever comes, goes and moves, nothing old stays.
func many(t *testing.T, b *chromium.Browser) {
	c, changed := newCrowd(30), make(chan struct{}, 1)
	tab := open(t, b, present(t, c, changed), desk)
	until(t, tab, "it is live", settled)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"one changes hands", func() { c.move(3) }},
		{"five change hands", func() {
			for i := range 5 {
				c.move(7 * i)
			}
		}},
		{"one is gone", func() { c.drop(4) }},
		{"another changes hands", func() { c.move(4) }},
		{"another is gone", func() { c.drop(0) }},
		{"it is back as it was", func() { c.back() }},
		{"and changes hands", func() { c.move(0) }},
	} {
		step.do()
		changed <- struct{}{}
		terms := 0
		for _, e := range c.state().Elections {
			terms += e.Transitions
		}
		until(t, tab, step.name+", and it is drawn", fmt.Sprintf(`document.querySelectorAll("tbody tr").length === %d && `, len(c.state().Elections))+
			fmt.Sprintf(`[...document.querySelectorAll("tbody .number")].reduce((sum, n) => sum + +n.textContent, 0) === %d && `, terms)+
			`(() => { `+sent+`.then(s => { window.alike = s === `+drawn+`; }); return window.alike === true; })()`)
		ask[bool](t, tab, `(window.alike = false, true)`)
	}
}

func gone(t *testing.T, b *chromium.Browser) {
	var tab *chromium.Tab
	t.Run("server", func(t *testing.T) {
		address := serve(t, configOf(t, cluster.Shared(t).Namespace(t), "stable"))
		var err error
		if tab, err = b.Open(address, desk); err != nil {
			t.Fatal(err)
		}
		until(t, tab, "it is live", settled)
	}) // which ends here
	until(t, tab, "it says so", `document.getElementById("live").textContent === "disconnected; retrying"`)
	if err := tab.Close(); err != nil {
		t.Error(err)
	}
}
