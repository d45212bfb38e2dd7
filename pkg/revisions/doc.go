// Package revisions follows which revision of the control plane is the default one, and
// which tags belong to a revision.
//
// Both are labels of MutatingWebhookConfigurations: the default revision is the label
// istio.io/rev of the one named istio-revision-tag-default, and a tag is the label
// istio.io/tag of one whose istio.io/rev is the revision. Since 1.27 istiod's tags may be
// labels of Services in its namespace, too, and where there is no default tag, objects
// without a label are those of the revision that istiod-default-validator is labelled
// with: TagWatcher knows both. DefaultWatcher reads neither, as istiod's does not:
// elections go by the webhook alone.
//
// A watcher knows three states apart: it has not read anything yet (HasSynced is
// false), there is none, and there is one. What it has read it keeps while the API
// server is away. It reads and watches with the verbs list and watch; without list it
// reads one object by get, and without watch it reads again every few seconds. A
// trouble is logged once when it begins and once when it is over.
//
//	     list, or get         watch
//	not synced ────▶ synced ◀───────▶ following
//	                   ▲  └─────┐
//	                   └────────┘ no watch: read again after a while
//
// Handlers are called in the order of the changes, one at a time, with no lock held. Those of a
// user that goes before the watcher does are added by Subscribable, which takes them off again.
package revisions
