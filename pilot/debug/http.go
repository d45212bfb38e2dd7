package debug

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Path is where the page is; its parts lie below.
const Path = "/debug/elections"

// policy lets the page load its own files and nothing else; nothing inline runs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page below Path, and leads there from "/".
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{$}", http.RedirectHandler(Path, http.StatusFound))
	mux.HandleFunc(Path, p.show)
	mux.HandleFunc(Path+"/events", p.stream)
	for _, a := range assets() {
		mux.Handle(Path+"/"+a.name, a)
	}
	return p.guard(mux)
}

// guard refuses what no reader of the page asks for, and gives every answer its headers.
func (p *Page) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		switch {
		case !p.hosts.answer(req.Host):
			p.config.Log.Debug("elections page asked for by a name that is not its own", "host", req.Host)
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf(
				"This page does not answer to the name %.100q. Ask for it as localhost (kubectl port-forward), or by the address that it listens on.", req.Host))
		case req.Method != http.MethodGet && req.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "This page is read-only: it takes GET and HEAD.")
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// refuse answers with one line of plain text.
func refuse(w http.ResponseWriter, status int, text string) { http.Error(w, text, status) }

// show answers with the whole page.
func (p *Page) show(w http.ResponseWriter, req *http.Request) {
	f := p.newest.Load()
	if f == nil {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "The page has not looked at the elections yet. Try again in a second.")
		return
	}
	q, err := parse(req.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	body, err := f.page(q)
	if err != nil {
		p.config.Log.Error("elections page cannot be rendered", "err", err)
		refuse(w, http.StatusInternalServerError, "The page cannot be rendered; the server's log says why.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if _, err := w.Write(body); err != nil {
		p.config.Log.Debug("reader of the elections page went away", "err", err)
	}
}

// hosts are the names and addresses, without port, that the page answers to.
type hosts struct {
	names map[string]bool
	// addresses: any address will do. Only a name can be made to mean another machine.
	addresses bool
}

func newHosts(address string, more []string) hosts {
	h := hosts{names: map[string]bool{"localhost": true}}
	if host, _, err := net.SplitHostPort(address); err == nil {
		ip, err := netip.ParseAddr(host)
		h.addresses = host == "" || err == nil && ip.IsUnspecified()
		h.names[canonical(host)] = host != ""
	}
	for _, name := range more {
		h.names[canonical(name)] = name != ""
	}
	return h
}

// answer reports whether a request with that Host header is meant for this page.
func (h hosts) answer(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = canonical(host)
	if ip, err := netip.ParseAddr(host); err == nil && (h.addresses || ip.Unmap().IsLoopback()) {
		return true
	}
	return h.names[host]
}

// canonical is one form for all spellings of a host.
func canonical(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if bare, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(bare, "]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}
