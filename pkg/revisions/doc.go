// Package revisions follows which revision of the control plane is the default one, and
// which tags belong to a revision.
//
// Both are labels of MutatingWebhookConfigurations: the default revision is the label
// istio.io/rev of the one named istio-revision-tag-default (of a control plane outside
// istio-system: istio-revision-tag-default-<namespace>), and a tag is the label
// istio.io/tag of one whose istio.io/rev is the revision. Since 1.27 istiod's tags may be
// labels of Services in its namespace, too, and where there is no default tag, objects
// without a label are those of the revision that istiod-default-validator is labelled
// with: TagWatcher knows both. DefaultWatcher reads neither, as istiod's does not:
// elections go by the webhook alone.
//
// A watcher distinguishes three states: nothing was read yet (HasSynced is false), there
// is no default revision, and there is one. It keeps what it has read while the API
// server is away. It reads and watches with the verbs list and watch; without list it
// reads one object by get, and without watch it reads again every few seconds. A
// failure is logged once when it begins and once when it is over.
//
//	     list, or get         watch
//	not synced ────▶ synced ◀───────▶ following
//	                   ▲  └─────┐
//	                   └────────┘ no watch: read again after Config.PollInterval
//
// Handlers are called in the order of the changes, one at a time, with no lock held. A user that
// ends before the watcher does adds its handler by Subscribable, and removes it again.
package revisions
