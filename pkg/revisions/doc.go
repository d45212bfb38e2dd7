// Package revisions watches the default revision of the control plane and the tags of a revision.
//
// Both are labels of MutatingWebhookConfigurations. The default revision is the label istio.io/rev of the webhook
// istio-revision-tag-default, or istio-revision-tag-default-<namespace> outside istio-system. A tag is the label istio.io/tag of a
// webhook whose label istio.io/rev is the revision. Since version 1.27, istiod also reads tags from Services in its namespace. If several
// revisions claim a tag, one of them counts (package tagging). Without a default tag, objects without a label belong to the revision of istiod-default-validator. TagWatcher reads both. DefaultWatcher
// reads neither, like istiod: elections use the webhook only.
//
// A watcher distinguishes three states: nothing has been read (HasSynced is false), there is no default revision, and there is one.
// It keeps its values while the API server is down. It uses the verbs list and watch. Without list it reads one object with get, and
// without watch it polls. A failure is logged once when it begins and once when it ends.
//
//	     list, or get         watch
//	not synced ────▶ synced ◀───────▶ following
//	                   ▲  └─────┐
//	                   └────────┘ no watch: read again after Config.PollInterval
//
// Handlers are called in the order of the changes, one at a time, without a mutex held. A user that ends before the watcher uses
// Subscribe instead of AddHandler.
package revisions
