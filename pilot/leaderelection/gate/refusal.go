package gate

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"incumbent.dev/incumbent/internal/fence"
)

// IsRefusal reports whether err is the rejection of a write by a policy of a fence.
func IsRefusal(err error) bool { return fence.IsRefusal(err) }

const (
	// firstPause and lastPause are the pauses between retries. A permanent rejection costs two requests per second.
	firstPause, lastPause = 5 * time.Millisecond, 500 * time.Millisecond
	// mostRefusal is the maximum number of bytes read to recognize a rejection.
	mostRefusal = 64 << 10
)

// refused reports whether the response is a rejection by a policy of a fence. The body stays readable.
func refused(resp *http.Response) bool {
	// 403 is the verdict of a policy, 422 a missing lock.
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnprocessableEntity {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
	resp.Body = &reread{Reader: io.MultiReader(bytes.NewReader(head), &failed{err}, resp.Body), Closer: resp.Body}
	return fence.Refuses(head)
}

// reread is a body that was partly read.
type reread struct {
	io.Reader
	io.Closer
}

// failed returns an earlier read error, if any.
type failed struct{ err error }

func (f *failed) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// repeat returns a copy of the request, or nil if the body cannot be read again.
func repeat(req *http.Request) *http.Request {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	again.Body = body
	return again
}
