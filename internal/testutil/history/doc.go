// Package history judges what an API server has stored: the writes of guarded work, each with
// the term that it was made in. The candidates' own clocks and logs say nothing here.
package history
