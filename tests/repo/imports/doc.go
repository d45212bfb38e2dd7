// Package imports checks which packages of the module may import which.
//
// A rule applies to a directory and everything below it. The table is in rules.go. A package without a rule is reported, so a new
// package needs a row there. The check also limits imports of other modules, and reads of clocks and environment variables, and
// requires a doc.go in each package and a comment on each exported name.
package imports
