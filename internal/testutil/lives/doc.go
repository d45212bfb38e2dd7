// Package lives records when the run functions of tests' candidates ran, finds those that ran at once, and runs candidates.
package lives
