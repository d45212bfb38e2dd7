package gatewaystatus

import (
	"cmp"
	"errors"
	"log/slog"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
)

const (
	// name is what logs and errors call the controller.
	name = "gateway status controller"
	// maxParents is how many entries the status of a route may have, of all controllers.
	maxParents = 32
)

// The reasons of Events on the objects whose status is written.
const (
	// ReasonUnknownClass: a Gateway names a class that does not exist, so it is nobody's.
	ReasonUnknownClass = "UnknownClass"
	// ReasonStatusFull: a route's status has no room for all entries.
	ReasonStatusFull = "StatusFull"
	// ReasonNotWritten: the API server refused to have a status written.
	ReasonNotWritten = "StatusNotWritten"
)

// Config of a Controller.
type Config struct {
	// Tags says which objects the revision has. Whoever made it runs it; the controller
	// waits for its HasSynced, and looks at all objects when it changes. While a
	// revisions.Awaiter is not current, nothing is written.
	Tags revisions.TagWatcher
	// LeaveClass says that the class istio is not made where it is missing.
	LeaveClass bool
	// Event receives what is wrong and stands in no condition, on the object. nil: it is only logged.
	Event reconcile.Event
	// Workers is how many writes may be under way at once; 0 means 4.
	Workers int
	// Logger receives what begins and ends to fail; nil means slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate reports all that cannot be meant.
func (c Config) Validate() error {
	var errs []error
	if c.Tags == nil {
		errs = append(errs, errors.New("the watcher of tags is missing: make one with revisions.NewTags"))
	}
	return errors.Join(append(errs, reconcile.ValidateWorkers(c.Workers))...)
}
