// Package cmp replaces go-cmp in client-go's tests, so that this module does not require go-cmp.
package cmp

import "fmt"

// Diff returns both values.
func Diff(a, b any) string { return fmt.Sprintf("%+v, not %+v", a, b) }
