// Command lint checks the rules of this project that no common linter knows:
// where the clock is read, where a context begins, how long functions and files
// are, and that no test sleeps. `make lint` runs it.
//
// A file whose job is the exception stands in allow.txt with its reason. An entry
// there that excuses nothing is reported too.
package main
