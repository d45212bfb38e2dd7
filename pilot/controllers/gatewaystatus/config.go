package gatewaystatus

import (
	"cmp"
	"errors"
	"log/slog"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
)

const (
	// name is the name of the controller in logs and errors.
	name = "gateway status controller"
	// maxParents is the maximum number of entries in the status of a route.
	maxParents = 32
)

// Reasons of Events.
const (
	// reasonUnknownClass means that the class of a Gateway does not exist.
	reasonUnknownClass = "UnknownClass"
	// reasonUnknownRevision means that the revision label of a Gateway names no revision and no tag.
	reasonUnknownRevision = "UnknownRevision"
	// reasonStatusFull means that the status of a route is limited to fewer entries than needed.
	reasonStatusFull = "StatusFull"
	// reasonNotWritten means that a status update failed.
	reasonNotWritten = "StatusNotWritten"
)

// Config configures a Controller.
type Config struct {
	// Tags selects the objects of the revision. The caller runs it. The controller waits for HasSynced and
	// reconciles all objects after a change. It writes nothing while Tags is not current.
	Tags revisions.Tags
	// LeaveClass disables the creation of the class istio.
	LeaveClass bool
	// Event records problems that are not in a condition. If nil, they are only logged.
	Event reconcile.Event
	// Logger logs failures and their ends. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate returns an error if Tags is not set.
func (c Config) Validate() error {
	if c.Tags == nil {
		return errors.New("tag watcher is not set: create it with revisions.NewTags")
	}
	return nil
}
