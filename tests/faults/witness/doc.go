// Package witness kills leaders of real processes in many ways and checks which locks their witness releases.
package witness
