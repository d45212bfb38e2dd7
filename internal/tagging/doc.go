// Package tagging decodes the tags of revisions: webhooks and Services whose labels give a tag, for example default, to a revision.
// Package revisions watches them.
package tagging
