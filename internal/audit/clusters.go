package audit

import (
	"fmt"
	"slices"
	"time"
)

// maxSkew is the largest difference of the clocks of two API servers of one cluster that is not reported.
const maxSkew = time.Minute

// clusters returns why the entries, which are in order, are not of one history. It is empty if they may be.
func (h History) clusters() string {
	l := h.log
	var first origin
	for _, o := range l.origins {
		switch {
		case first.cluster == "":
			first = o
		case o.cluster != "" && o.cluster != first.cluster:
			return mixed("%s is of cluster %s, and %s of cluster %s", first.file, first.cluster, o.file, o.cluster)
		}
	}
	if why := l.sameVersion(); why != "" {
		return why
	}
	return h.sameLock()
}

func mixed(format string, args ...any) string {
	return "the logs are of two clusters, or the store was restored: " + fmt.Sprintf(format, args...)
}

// sameVersion finds two objects of a kind with one version. The objects of a kind are in one store, which counts versions.
func (l *Log) sameVersion() string {
	first := map[kind]*entry{}
	var version uint64
	for i := range l.entries {
		e := &l.entries[i]
		if !e.exact {
			continue
		}
		if e.version != version {
			clear(first)
			version = e.version
		}
		at := e.whole()
		stored := kind{group: at.group, resource: at.resource}
		other := first[stored]
		if other == nil {
			first[stored] = e
			continue
		}
		if was := other.whole(); was.namespace != at.namespace || was.name != at.name {
			return mixed("version %d of %s is %s/%s in %s, and %s/%s in %s", version, at.resource, was.namespace, was.name, other.origin.Value().file, at.namespace, at.name, e.origin.Value().file)
		}
	}
	return ""
}

// life is the time between the writes of a lock with one UID.
type life struct {
	uid        string
	file       string
	begin, end int64
}

// sameLock finds a lock that exists twice at a time.
func (h History) sameLock() string {
	all := map[Lock][]life{}
	for i := range h.log.entries {
		e := &h.log.entries[i]
		at := e.target.Value()
		id := at.lock()
		if !e.exact || at.uid == "" || !h.locks[id] {
			continue
		}
		n := slices.IndexFunc(all[id], func(l life) bool { return l.uid == at.uid })
		if n < 0 {
			n = len(all[id])
			all[id] = append(all[id], life{uid: at.uid, file: e.origin.Value().file, begin: e.received})
		}
		mine := &all[id][n]
		mine.begin = min(mine.begin, e.received)
		mine.end = max(mine.end, e.answered)
		for k, other := range all[id] {
			if k > n || k < n && time.Duration(min(mine.end, other.end)-max(mine.begin, other.begin)) > maxSkew {
				return mixed("%v has the UID %s in %s, and %s in %s", id, other.uid, other.file, mine.uid, mine.file)
			}
		}
	}
	return ""
}
