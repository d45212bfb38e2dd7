// Package example runs README.md's program in a Pod of the embedded cluster, with no more
// rights than it needs, and stops it as kubectl does.
package example
