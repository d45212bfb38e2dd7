// Package lives records when run functions ran, detects overlaps, and runs candidates.
package lives
