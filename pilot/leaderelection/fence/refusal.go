package fence

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
	// firstPause and lastPause lie between two tries. The last is long enough for a policy
	// that refuses for good to cost two requests a second.
	firstPause, lastPause = 5 * time.Millisecond, 500 * time.Millisecond
	// mostRefusal bounds what is read of an answer to see whether it is a refusal.
	mostRefusal = 64 << 10
)

// refused reports whether the answer is a refusal by one of our policies. The answer can
// be read as before.
func refused(resp *http.Response) bool {
	// A policy's own verdict is the first; that its lock is missing, the second.
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnprocessableEntity {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
	resp.Body = &reread{Reader: io.MultiReader(bytes.NewReader(head), &failed{err}, resp.Body), Closer: resp.Body}
	return fence.Refuses(head)
}

// reread is a body that was read in part.
type reread struct {
	io.Reader
	io.Closer
}

// failed repeats what went wrong while reading, if anything did.
type failed struct{ err error }

func (f *failed) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// repeat makes the same request again; nil if that cannot be done.
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
