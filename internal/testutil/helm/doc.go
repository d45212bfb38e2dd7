// Package helm runs the Helm program that tools/helm builds.
package helm
