// Package derive computes the durations of an election that follow from those that a user gives. It is apart from core,
// which decides by them, so that the elector and its simulation derive them alike.
package derive
