// Package golden compares texts with files. The flag -rewrite writes the files instead.
package golden
