// Package codec converts between stored locks and the values of package core.
package codec
