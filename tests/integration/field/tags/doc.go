// Package tags tests tags that two revisions claim, and tags of namespaces, with servers on a real API server.
package tags
