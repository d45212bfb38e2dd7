package gatewaystatus

import (
	"log/slog"
	"sync"
)

// fullRoutes knows the routes whose status has no room for all of our entries, and says so once of each.
type fullRoutes struct {
	log *slog.Logger
	mu  sync.Mutex
	all map[key]int
}

func newFullRoutes(log *slog.Logger) *fullRoutes {
	return &fullRoutes{log: log, all: map[key]int{}}
}

// note takes how many entries find no room.
func (f *fullRoutes) note(k key, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.all[k]
	if left == 0 {
		delete(f.all, k)
		if before != 0 {
			f.log.Info("the status of a route has room again", "namespace", k.namespace, "route", k.name)
		}
		return
	}
	f.all[k] = left
	if before == 0 {
		f.log.Warn("the status of a route is full of other controllers' entries, some of ours are left out",
			"namespace", k.namespace, "route", k.name, "left", left, "max", maxParents)
	}
}
