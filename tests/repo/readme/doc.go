// Package readme holds README.md to what is true: its example compiles, its make
// targets exist, and the folders that it names are there.
package readme
