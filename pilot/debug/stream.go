package debug

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// longAgo, as a deadline, ends a write that is under way.
var longAgo = time.Unix(1, 0)

// stream sends the page's <main> whenever there is a newer frame, until the reader goes, is too
// slow, or the page ends.
func (p *Page) stream(w http.ResponseWriter, req *http.Request) {
	q, err := parse(req.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	r := p.running.Load()
	if r == nil || r.ctx.Err() != nil || p.newest.Load() == nil {
		refuse(w, http.StatusServiceUnavailable, "The page is not running.")
		return
	}
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "Too many pages are open already. Close some, or reload this one by hand.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if req.Method == http.MethodHead {
		return
	}
	if err := p.send(r.ctx, w, req, q); err != nil {
		p.config.Log.Debug("reader of the elections page was dropped", "err", err)
	}
}

func (p *Page) send(ctx context.Context, w http.ResponseWriter, req *http.Request, q query) error {
	out := http.NewResponseController(w)
	// A write that hangs ends with the page, too.
	stop := context.AfterFunc(ctx, func() { _ = out.SetWriteDeadline(longAgo) })
	defer stop()
	for {
		f := p.newest.Load()
		body, err := f.main(q)
		if err != nil {
			return err
		}
		if err := out.SetWriteDeadline(p.config.Now().Add(p.config.WriteTimeout)); err != nil {
			return err
		}
		if ctx.Err() != nil { // asked after the deadline was set, which would undo what stop has set
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

// message is one server-sent event. A line break ends a field, so each line is one of its own.
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
