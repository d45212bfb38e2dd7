package page

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// longAgo is a deadline that ends a pending write.
var longAgo = time.Unix(1, 0)

// stream sends <main> for each new frame, until the client disconnects or is too slow, or the page ends.
func (p *Page) stream(w http.ResponseWriter, req *http.Request) {
	q, err := parse(req.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r := p.running.Load()
	if r == nil || r.ctx.Err() != nil || p.newest.Load() == nil {
		http.Error(w, "The page is not running.", http.StatusServiceUnavailable)
		return
	}
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "Too many pages are open. Close some, or reload this page manually.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if req.Method == http.MethodHead {
		return
	}
	if err := p.send(r.ctx, w, req, q); err != nil {
		p.config.Log.Debug("disconnected a client of the elections page", "err", err)
	}
}

func (p *Page) send(ctx context.Context, w http.ResponseWriter, req *http.Request, q query) error {
	out := http.NewResponseController(w)
	// A hanging write ends with the page.
	stop := context.AfterFunc(ctx, func() { _ = out.SetWriteDeadline(longAgo) })
	defer stop()
	for {
		f := p.newest.Load()
		body, err := f.main(q)
		if err != nil {
			return err
		}
		if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if ctx.Err() != nil { // checked after setting the deadline, which overwrites the deadline of stop
			return nil
		}
		if _, err := w.Write(message(body)); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case <-f.next:
		case <-req.Context().Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// message returns a server-sent event. Each line of the body is a field.
func message(body []byte) []byte {
	var b bytes.Buffer
	b.WriteString("retry: 1000\nevent: main\n")
	for line := range bytes.Lines(body) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
