// Package example runs the program of README.md in a Pod, with the least permissions, and deletes the Pod with kubectl.
package example
