// Package language checks the wording of string literals, names and documents.
//
// Vale checks comments and pages for single words (`make lint`, .vale.ini). This package checks what
// vale does not read: string literals, names of tests and identifiers. It also limits the share of
// long sentences and of indirect constructions, such as "what is" and "of which".
package language
