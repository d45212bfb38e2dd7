// Package codec translates between what a lock stores and the plain values that core decides on.
package codec
