package leaderelection

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pkg/revisions"
)

// watcher says what the default revision is; "?": it has not synced.
type watcher string

func (watcher) Run(<-chan struct{})                 {}
func (w watcher) HasSynced() bool                   { return w != "?" }
func (w watcher) GetDefault() string                { return string(w) }
func (watcher) AddHandler(revisions.DefaultHandler) {}

// A predecessor is named in full, and is another lock than the election's own.
func TestWhichPredecessorsAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		p      Predecessor
		lock   LockType
		refuse string
	}{
		"another name":                     {Predecessor{Name: "old", Lock: ConfigMapLock}, ConfigMapLock, ""},
		"another namespace":                {Predecessor{Namespace: "elsewhere", Name: "new", Lock: LeaseLock}, LeaseLock, ""},
		"another kind":                     {Predecessor{Name: "new", Lock: ConfigMapLock}, LeaseLock, ""},
		"no name":                          {Predecessor{Lock: ConfigMapLock}, ConfigMapLock, `the Predecessor's Name ""`},
		"no name that an object can have":  {Predecessor{Name: "Old", Lock: LeaseLock}, ConfigMapLock, `the Predecessor's Name "Old"`},
		"two locks":                        {Predecessor{Name: "old", Lock: MultiLock}, ConfigMapLock, "is neither ConfigMapLock nor LeaseLock"},
		"its own":                          {Predecessor{Name: "new", Lock: LeaseLock}, LeaseLock, "is the election's own lock"},
		"its own, by its namespace":        {Predecessor{Namespace: "istio-system", Name: "new", Lock: LeaseLock}, LeaseLock, "is the election's own lock"},
		"one of its own two":               {Predecessor{Name: "new", Lock: ConfigMapLock}, MultiLock, "is the election's own lock"},
		"the other of its own two":         {Predecessor{Name: "new", Lock: LeaseLock}, MultiLock, "is the election's own lock"},
		"a name that is wrong, and a kind": {Predecessor{Name: "Old", Lock: MultiLock}, MultiLock, "is neither ConfigMapLock nor LeaseLock"},
	} {
		cfg := Config{Namespace: "istio-system", ElectionID: "new", Revision: "canary", Lock: x.lock, Predecessor: &x.p}
		err := cfg.validate()
		if x.refuse == "" && err != nil || x.refuse != "" && (err == nil || !strings.Contains(err.Error(), x.refuse)) {
			t.Errorf("%s: %v, want %q", name, err, x.refuse)
		}
	}
}
