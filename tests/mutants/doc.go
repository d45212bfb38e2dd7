// Command mutants asks whether the tests can fail: it plants small faults in the code, one at a
// time, and reports those that no test notices.
//
// All faults of a room are compiled into one test binary per package and chosen by an
// environment variable (see write.go), so a mutant costs the run of some tests and no
// build. The sources stay untouched: the go command is given the changed files as an
// overlay. Which tests reach which mutant is recorded once, test by test; a mutant is
// judged by the tests that reach it alone, the cheapest first, until one fails.
//
// Rooms, and the tests that judge them, are listed in rooms.go. Survivors that change
// nothing that can be observed stand in equivalent.txt, each with its reason; entries
// that excuse nothing are reported.
package main
