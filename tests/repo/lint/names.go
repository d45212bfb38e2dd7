package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var (
	changedTo    = regexp.MustCompile(`\bcd (\S+) &&`)
	selected     = regexp.MustCompile(`-(?:run|bench|fuzz) '?([\w|]+)'?`)
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// checkNames returns the names that a Makefile passes to go test and that match no function of the packages. Such a target passes without a test.
func checkNames(fsys fs.FS, makefile string) (findings []string) {
	for line := range strings.Lines(strings.ReplaceAll(makefile, "\\\n", " ")) {
		folder := ""
		if cd := changedTo.FindStringSubmatch(line); cd != nil {
			folder = cd[1]
		}
		for _, command := range strings.Split(line, "go test ")[1:] {
			var functions []string
			for _, word := range strings.Fields(command) {
				if word != "." && !strings.HasPrefix(word, "./") {
					continue
				}
				files, _ := fs.Glob(fsys, path.Join(folder, word, "*_test.go")) // an invalid pattern matches no file
				for _, file := range files {
					content, _ := fs.ReadFile(fsys, file) // a file that cannot be read has no function
					for _, found := range testFunction.FindAllStringSubmatch(string(content), -1) {
						functions = append(functions, found[1])
					}
				}
			}
			for _, names := range selected.FindAllStringSubmatch(command, -1) {
				for name := range strings.SplitSeq(names[1], "|") {
					if !strings.Contains(strings.Join(functions, " "), name) {
						findings = append(findings, fmt.Sprintf("Makefile: %s matches no function: go test %s", name, strings.TrimSpace(command)))
					}
				}
			}
		}
	}
	return findings
}
