package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
)

// followInterval is the interval at which a followed log is read.
const followInterval = 50 * time.Millisecond

// logRequest is the supported part of a log request.
type logRequest struct {
	follow, previous bool
	// tail is the number of lines, or -1 for all.
	tail int
}

// parseLogRequest returns an error for unsupported parameters.
func parseLogRequest(query url.Values) (logRequest, error) {
	r := logRequest{tail: -1}
	for key, values := range query {
		var err error
		switch value := values[0]; key {
		case "follow":
			r.follow, err = strconv.ParseBool(value)
		case "previous":
			r.previous, err = strconv.ParseBool(value)
		case "tailLines":
			r.tail, err = strconv.Atoi(value)
		case "timestamps", "limitBytes", "sinceSeconds", "sinceTime":
			err = errors.New("a process node supports only --follow, --previous and --tail")
		}
		if err != nil {
			return r, fmt.Errorf("%s=%q: %w", key, values[0], err)
		}
	}
	return r, nil
}

// logs serves `kubectl logs`.
func (n *Node) logs(out http.ResponseWriter, r *http.Request) {
	request, err := parseLogRequest(r.URL.Query())
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	w, err := n.find(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		http.Error(out, err.Error(), http.StatusNotFound)
		return
	}
	which := w.runs() - 1
	if request.previous {
		which--
	}
	if which < 0 {
		http.Error(out, "no such process", http.StatusBadRequest)
		return
	}
	out.Header().Set("Content-Type", "text/plain")
	// After the first byte an error can only end the response.
	if err := w.sendLog(r.Context(), out, which, request); err != nil && r.Context().Err() == nil {
		w.logger.Warn("failed to send log of Pod", "err", err)
	}
}

// mark records the position in the log at which the next process starts.
func (w *worker) mark() error {
	end := int64(0)
	info, err := os.Stat(w.view.Log)
	switch {
	case err == nil:
		end = info.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read log of Pod: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts = append(w.starts, end)
	return nil
}

// runs returns the number of processes so far.
func (w *worker) runs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.starts)
}

// part returns the range of the n-th process in the log. to is -1 while it can grow.
func (w *worker) part(n int) (from, to int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, to = w.starts[n], -1
	if n+1 < len(w.starts) {
		to = w.starts[n+1]
	}
	return from, to
}

// sendLog copies the output of the n-th process. With follow, it continues while the process runs.
func (w *worker) sendLog(ctx context.Context, out http.ResponseWriter, n int, request logRequest) error {
	file, err := os.Open(w.view.Log)
	if err != nil {
		return err
	}
	defer file.Close()
	tail := request.tail
	for at := int64(-1); ; tail = -1 {
		// Check before reading, so that all output of an ended process is read.
		alive := w.writes(n)
		from, to := w.part(n)
		if to < 0 {
			if to, err = file.Seek(0, io.SeekEnd); err != nil {
				return err
			}
		}
		text := make([]byte, to-max(from, at))
		if _, err := file.ReadAt(text, max(from, at)); err != nil {
			return err
		}
		at = to
		if _, err := out.Write(lastLines(text, tail)); err != nil {
			return err
		}
		if err := http.NewResponseController(out).Flush(); err != nil {
			return err
		}
		if !request.follow || !alive || apirequest.Pause(ctx, followInterval) != nil {
			return nil
		}
	}
}

// writes reports whether the n-th process runs.
func (w *worker) writes(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return n == len(w.starts)-1 && w.process != nil && w.process.State() == nil
}

// lastLines returns the last lines of a text, or all of it if count is negative.
func lastLines(text []byte, count int) []byte {
	if count < 0 {
		return text
	}
	start := len(text)
	for ; count > 0 && start > 0; count-- {
		start = bytes.LastIndexByte(text[:start-1], '\n') + 1
	}
	return text[start:]
}
