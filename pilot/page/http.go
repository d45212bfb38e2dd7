package page

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Path is the path of the page and the prefix of its assets.
const Path = "/debug/elections"

// policy allows the page to load only its own files, and no inline scripts or styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Handler serves the page below Path and redirects "/" to it.
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

// guard checks host and method and sets the headers of all responses.
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
			p.config.Log.Debug("elections page requested with an unknown host", "host", req.Host)
			http.Error(w, fmt.Sprintf("Unknown host %.100q. Use localhost (kubectl port-forward) or the listen address of the page.", req.Host),
				http.StatusMisdirectedRequest)
		case req.Method != http.MethodGet && req.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "This page is read-only. Use GET or HEAD.", http.StatusMethodNotAllowed)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// show sends the whole page.
func (p *Page) show(w http.ResponseWriter, req *http.Request) {
	f := p.newest.Load()
	if f == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "The page has no state yet. Retry in a second.", http.StatusServiceUnavailable)
		return
	}
	q, err := parse(req.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := f.page(q)
	if err != nil {
		p.config.Log.Error("failed to render the elections page", "err", err)
		http.Error(w, "The page cannot be rendered. See the server's log.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if _, err := w.Write(body); err != nil {
		p.config.Log.Debug("failed to send the elections page", "err", err)
	}
}

// hosts are the accepted names and addresses, without port.
type hosts struct {
	names map[string]bool
	// addresses accepts any address. DNS rebinding needs a name.
	addresses bool
}

func newHosts(address string) hosts {
	h := hosts{names: map[string]bool{"localhost": true}}
	if host, _, err := net.SplitHostPort(address); err == nil {
		ip, err := netip.ParseAddr(host)
		h.addresses = host == "" || err == nil && ip.IsUnspecified()
		h.names[canonical(host)] = host != ""
	}
	return h
}

// answer reports whether the Host header is accepted.
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

// canonical returns the canonical form of a host.
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
