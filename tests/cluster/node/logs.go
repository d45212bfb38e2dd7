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

const (
	// followInterval is the interval at which a followed log is read.
	followInterval = 50 * time.Millisecond
	tailBlock      = 16 << 10
)

// logRequest is the supported part of a log request.
type logRequest struct {
	follow, previous bool
	// tail is the number of lines, limit the number of bytes; -1 means all.
	tail, limit int64
}

// parseLogRequest returns an error for unsupported parameters.
func parseLogRequest(query url.Values) (logRequest, error) {
	r := logRequest{tail: -1, limit: -1}
	for key, values := range query {
		var err error
		switch value := values[0]; key {
		case "follow":
			r.follow, err = strconv.ParseBool(value)
		case "previous":
			r.previous, err = strconv.ParseBool(value)
		case "tailLines":
			r.tail, err = strconv.ParseInt(value, 10, 64)
		case "limitBytes":
			r.limit, err = strconv.ParseInt(value, 10, 64)
		case "timestamps":
			var wanted bool
			if wanted, err = strconv.ParseBool(value); wanted {
				err = errors.New("lines have only the timestamps that the process wrote")
			}
		case "sinceSeconds", "sinceTime":
			err = errors.New("a process node does not record the time of a line: use --tail")
		case "stream":
			if value != "All" {
				err = errors.New("standard output and standard error are one stream")
			}
		}
		if err != nil {
			return r, fmt.Errorf("%s=%q: %w", key, values[0], err)
		}
	}
	return r, nil
}

// logs serves `kubectl logs`.
func (e *endpoint) logs(w http.ResponseWriter, r *http.Request) {
	request, err := parseLogRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	worker := e.node.worker(r.PathValue("namespace"), r.PathValue("pod"))
	if worker == nil {
		http.Error(w, fmt.Sprintf("%s/%s: %v", r.PathValue("namespace"), r.PathValue("pod"), ErrNoPod), http.StatusNotFound)
		return
	}
	if containers := worker.latest.Load().Spec.Containers; len(containers) != 1 || containers[0].Name != r.PathValue("container") {
		http.Error(w, fmt.Sprintf("Pod has no container %q", r.PathValue("container")), http.StatusNotFound)
		return
	}
	which := worker.runs() - 1
	if request.previous {
		which--
	}
	if which < 0 {
		http.Error(w, "no such process", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	// After the first byte an error can only end the response.
	if err := worker.sendLog(r.Context(), w, which, request); err != nil && r.Context().Err() == nil {
		worker.logger.Warn("failed to send log of Pod", "err", err)
	}
}

// worker returns the worker of a Pod, or nil. Of two Pods with the same name it returns the newer one.
func (n *Node) worker(namespace, name string) *worker {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found *worker
	for _, w := range n.workers {
		if w.namespace == namespace && w.name == name && (found == nil || w.newer(found)) {
			found = w
		}
	}
	return found
}

func (w *worker) newer(than *worker) bool {
	return than.latest.Load().CreationTimestamp.Before(&w.latest.Load().CreationTimestamp)
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
	from, to := w.part(n)
	end := to
	if end < 0 {
		if end, err = file.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	if from, err = lastLines(file, from, end, request.tail); err != nil {
		return err
	}
	flush := http.NewResponseController(out)
	for {
		// Check before reading, so that all output of an ended process is read.
		alive := w.writes(n)
		if _, to = w.part(n); to < 0 {
			if to, err = file.Seek(0, io.SeekEnd); err != nil {
				return err
			}
		}
		size := to - from
		if request.limit >= 0 {
			size = min(size, request.limit)
		}
		if _, err := io.Copy(out, io.NewSectionReader(file, from, size)); err != nil {
			return err
		}
		from += size
		if request.limit >= 0 {
			request.limit -= size
		}
		if err := flush.Flush(); err != nil {
			return err
		}
		if !request.follow || !alive || request.limit == 0 || apirequest.Pause(ctx, followInterval) != nil {
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

// lastLines returns the offset of the last lines of a part of a file.
func lastLines(file io.ReaderAt, from, to, lines int64) (int64, error) {
	if lines < 0 {
		return from, nil
	}
	if lines == 0 {
		return to, nil
	}
	at, seen := to, int64(0)
	for at > from {
		block := make([]byte, min(tailBlock, at-from))
		if _, err := file.ReadAt(block, at-int64(len(block))); err != nil {
			return from, err
		}
		for {
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 {
				break
			}
			after := at - int64(len(block)) + int64(i) + 1
			// The final newline ends the last line.
			if after < to {
				if seen++; seen == lines {
					return after, nil
				}
			}
			at -= int64(len(block) - i)
			block = block[:i]
		}
		at -= int64(len(block))
	}
	return from, nil
}
