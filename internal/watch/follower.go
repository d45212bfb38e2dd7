package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// requestTimeout is the limit of a read, and of the time in which the API server must accept a watch. Without it, an API server that
	// does not respond would block a watch forever.
	requestTimeout = 10 * time.Second
	// FirstPause is the pause after the first failure. It doubles up to Follower.LongestPause. Each pause is changed at random by up to one
	// half, so that many processes do not reconnect together.
	FirstPause = 200 * time.Millisecond
	// ShortWatch is the duration below which a watch counts as failed, because a proxy may close each watch.
	ShortWatch = 5 * time.Second
	// MinWatch and MaxWatch are the bounds of the random time after which the API server ends a watch.
	MinWatch = 5 * time.Minute
	MaxWatch = 10 * time.Minute
)

// ErrNotAccepted is the error of a connection that failed before the watch was accepted. client-go reports no error then.
var ErrNotAccepted = errors.New("connection ended before the watch was accepted")

// Object is an object of the API server.
type Object interface {
	runtime.Object
	metav1.Object
}

// Follower keeps one watch open until its context ends. Run calls all functions, one at a time.
type Follower struct {
	// Watch sends the request.
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Selection selects the objects.
	Selection metav1.ListOptions
	// Read is called before each connection and returns the version from which the watch continues. If it returns "", the watch begins
	// with the existing objects. If Read is nil, the watch resumes from the last version.
	Read func(context.Context) (version string, err error)
	// Connected is called when the API server has accepted the watch. gap reports that changes since the last event may be missing. An
	// error ends the connection.
	Connected func(ctx context.Context, gap bool) error
	// Event receives each change. An error ends the connection. A server that does not support the selection also sends other objects.
	Event func(ctx context.Context, kind apiwatch.EventType, object Object) error
	// Ended is called after each connection. Run returns if the result is false.
	Ended func(End) (again bool)
	// LongestPause is the longest pause between two connections.
	LongestPause time.Duration
	// Pause returns the pause after an error. backOff is the pause of the back-off. Optional.
	Pause func(err error, backOff time.Duration) time.Duration

	mu         sync.Mutex
	disconnect context.CancelFunc // ends the current connection; nil if there is none
	restart    bool
}

// End is the end of a connection.
type End struct {
	// Err is why the connection ended or could not be opened. It is nil for an ordinary end.
	Err error
	// Accepted reports that the API server had accepted the watch.
	Accepted bool
	// Resumes reports that the next connection starts immediately and that no change is missed.
	Resumes bool

	resume string // version from which the next connection can resume
	lasted bool
}

// Restart ends the connection. The next connection begins with the existing objects. It does not wait.
func (f *Follower) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restart = true
	if f.disconnect != nil {
		f.disconnect()
	}
}

// Run follows the objects until ctx ends or Ended returns false.
func (f *Follower) Run(ctx context.Context) {
	from := ""
	failed := 0
	for ctx.Err() == nil {
		end := f.connect(ctx, from)
		if ctx.Err() != nil {
			return
		}
		restart := f.disconnected()
		if from = end.resume; restart || IsExpired(end.Err) {
			from = ""
		}
		if restart {
			end.Err = nil
		}
		switch {
		case restart, end.lasted && end.Err == nil:
			failed = 0
		case end.lasted:
			failed = 1
		default:
			failed++
		}
		end.Resumes = failed == 0 && from != ""
		if !f.Ended(end) {
			return
		}
		if !restart && !end.Resumes {
			f.pause(ctx, failed, end.Err)
		}
	}
}

// connect opens a connection and passes its events until it ends.
func (f *Follower) connect(parent context.Context, from string) (end End) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if f.connecting(cancel) {
		from = ""
	}
	gap := from == ""
	if f.Read != nil {
		gap = true
		if from, end.Err = f.Read(ctx); end.Err != nil {
			return end
		}
	}
	end.resume = from
	w, first, err := f.open(ctx, cancel, from)
	if end.Err = err; err != nil {
		return end
	}
	defer w.Stop()
	end.Accepted = true
	long := time.After(ShortWatch)
	if end.Err = f.Connected(ctx, gap); end.Err == nil {
		end.Err = f.events(ctx, w, first, &end)
	}
	select {
	case <-long:
		end.lasted = true
	default:
	}
	if f.Read != nil {
		end.resume = ""
	}
	return end
}

// connecting reports whether Restart was called since the last connection.
func (f *Follower) connecting(disconnect context.CancelFunc) (restart bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	restart = f.restart
	f.restart = false
	f.disconnect = disconnect
	return restart
}

// disconnected reports whether Restart ended the connection.
func (f *Follower) disconnected() (restart bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disconnect = nil
	return f.restart
}

// open starts a watch within requestTimeout. It returns the first event if it had to receive it.
func (f *Follower) open(ctx context.Context, cancel context.CancelFunc, from string) (apiwatch.Interface, *apiwatch.Event, error) {
	options := f.Selection
	options.ResourceVersion = from
	options.AllowWatchBookmarks = true
	options.TimeoutSeconds = new(int64((MinWatch + rand.N(MaxWatch-MinWatch)) / time.Second))
	limit := time.AfterFunc(requestTimeout, cancel)
	w, err := f.Watch(ctx, options)
	if !limit.Stop() {
		if err == nil {
			w.Stop()
		}
		return nil, nil, fmt.Errorf("watch was not accepted within %v: %w", requestTimeout, context.DeadlineExceeded)
	}
	if err != nil {
		return nil, nil, err
	}
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			w.Stop()
			return nil, nil, ErrNotAccepted
		}
		return w, &event, nil
	default:
		return w, nil, nil
	}
}

// events passes the events of a watch until the watch ends or ctx is done.
func (f *Follower) events(ctx context.Context, w apiwatch.Interface, first *apiwatch.Event, end *End) error {
	if first != nil {
		if err := f.event(ctx, *first, end); err != nil {
			return err
		}
	}
	// A select chooses at random between ready channels. The extra check prevents events after the end of ctx.
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := f.event(ctx, event, end); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Follower) event(ctx context.Context, event apiwatch.Event, end *End) error {
	switch event.Type {
	case apiwatch.Error:
		return apierrors.FromObject(event.Object)
	case apiwatch.Added, apiwatch.Modified, apiwatch.Deleted, apiwatch.Bookmark:
	default:
		return fmt.Errorf("unknown event type %q", event.Type)
	}
	object, ok := event.Object.(Object)
	if !ok {
		return fmt.Errorf("%s event with object %T", event.Type, event.Object)
	}
	if event.Type != apiwatch.Bookmark {
		if err := f.Event(ctx, event.Type, object); err != nil {
			return err
		}
	}
	// A watch without a version begins with the existing objects in any order.
	if version := object.GetResourceVersion(); version != "" && !Older(version, end.resume) {
		end.resume = version
	}
	return nil
}

// pause waits before the next connection.
func (f *Follower) pause(ctx context.Context, failed int, err error) {
	d := min(FirstPause<<min(max(failed-1, 0), 16), f.LongestPause)
	if f.Pause != nil {
		d = f.Pause(err, d)
	}
	_ = apirequest.Pause(ctx, d/2+rand.N(d)) // Run sees the end of ctx
}

// ByName selects one object. RBAC rules with resourceNames permit only such lists and watches.
func ByName(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// IsExpired reports whether a watch cannot resume because its version is too old. Older API servers return Gone.
func IsExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// Older reports whether version was stored before than. Both are resourceVersions of one kind. It returns false if either is
// not a resourceVersion, for example "".
func Older(version, than string) bool {
	order, _ := resourceversion.CompareResourceVersion(version, than) // 0 with an error
	return order < 0
}

// IsNews reports whether version was stored after the known version of an object. It returns true if either is not a resourceVersion.
func IsNews(version, known string) bool {
	order, err := resourceversion.CompareResourceVersion(version, known)
	return err != nil || order > 0
}
