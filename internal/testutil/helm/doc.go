// Package helm runs Helm as a program, which its module, tools/helm, builds.
package helm
