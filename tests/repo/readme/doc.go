// Package readme checks README.md and the pages in docs: the example compiles, make targets and directories exist, links and anchors
// resolve, and the pages are within their limits.
package readme
