// Package fences installs fences for tests.
package fences
