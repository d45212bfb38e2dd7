package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
)

// followInterval is the interval at which a followed log is read.
const followInterval = 50 * time.Millisecond

// parseLogRequest returns the supported parameters of `kubectl logs`, without previous. tail is the number of lines, or -1 for all.
func parseLogRequest(query url.Values) (follow bool, tail int, err error) {
	for _, other := range []string{"timestamps", "limitBytes", "sinceSeconds", "sinceTime"} {
		if query.Has(other) {
			return false, 0, fmt.Errorf("%s: a process node supports only --follow, --previous and --tail", other)
		}
	}
	tail = -1
	if query.Has("tailLines") {
		tail, err = strconv.Atoi(query.Get("tailLines"))
	}
	return query.Get("follow") == "true", tail, err
}

// logs serves `kubectl logs`.
func (n *Node) logs(out http.ResponseWriter, r *http.Request) {
	w, err := n.find(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		http.Error(out, err.Error(), http.StatusNotFound)
		return
	}
	follow, tail, err := parseLogRequest(r.URL.Query())
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	file, err := os.Open(w.view.Log)
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	defer file.Close()
	text := io.Reader(file)
	if r.URL.Query().Get("previous") == "true" {
		begin, end, found := w.previous()
		if !found {
			http.Error(out, fmt.Sprintf("no previous process of Pod %s", r.PathValue("pod")), http.StatusBadRequest)
			return
		}
		text = io.NewSectionReader(file, begin, end-begin)
	}
	out.Header().Set("Content-Type", "text/plain")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(w.exists, cancel)()
	// After the first byte an error can only end the response.
	if err := sendLog(ctx, out, text, follow, tail); err != nil && ctx.Err() == nil {
		w.logger.Warn("failed to send log of Pod", "err", err)
	}
}

// began records that a process begins at the end of the log.
func (w *worker) began() {
	var end int64
	if info, err := os.Stat(w.view.Log); err == nil {
		end = info.Size()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begins = append(w.begins, end)
}

// previous returns the part of the log that the last process wrote before the current one.
func (w *worker) previous() (begin, end int64, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.begins) - 1; last > 0 {
		return w.begins[last-1], w.begins[last], true
	}
	return 0, 0, false
}

// maxMessage limits the termination message of a process, as a kubelet does.
const maxMessage = 2048

// endOfLog returns the end of the output of the current process.
func (w *worker) endOfLog() string {
	text, err := os.ReadFile(w.view.Log)
	if err != nil {
		return err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	text = text[w.begins[len(w.begins)-1]:]
	return string(text[max(0, len(text)-maxMessage):])
}

// sendLog copies the output, by default of all processes of a Pod. With follow, it continues until ctx ends.
func sendLog(ctx context.Context, out http.ResponseWriter, file io.Reader, follow bool, tail int) error {
	for {
		text, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		if _, err := out.Write(lastLines(text, tail)); err != nil {
			return err
		}
		if err := http.NewResponseController(out).Flush(); err != nil {
			return err
		}
		if !follow || apirequest.Pause(ctx, followInterval) != nil {
			return nil
		}
		tail = -1
	}
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
