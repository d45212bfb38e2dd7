package main

import (
	"fmt"
	"slices"
	"strings"
)

// exception excuses one file, one function of it ("file.go:Name"), or all files
// of a folder ("folder/") from a rule.
type exception struct {
	rule, where, reason string
	line                int
}

type exceptions []exception

// parseExceptions reads the list: rule, place and reason on each line. Empty lines
// and those that begin with # say nothing.
func parseExceptions(text string) (exceptions, error) {
	var list exceptions
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("allow.txt:%d: want a rule, a place and a reason", number)
		}
		if !slices.Contains([]string{ruleClock, ruleContext, ruleSleep, ruleFunction, ruleFile}, fields[0]) {
			return nil, fmt.Errorf("allow.txt:%d: there is no rule %q", number, fields[0])
		}
		list = append(list, exception{
			rule: fields[0], where: fields[1], reason: strings.Join(fields[2:], " "), line: number,
		})
	}
	return list, nil
}

// excuses reports whether the exception covers a finding.
func (e exception) excuses(f Finding) bool {
	switch {
	case e.rule != f.Rule:
		return false
	case strings.HasSuffix(e.where, "/"):
		return strings.HasPrefix(f.File, e.where)
	case f.Func != "":
		return e.where == f.File+":"+f.Func
	default:
		return e.where == f.File
	}
}

// filter takes away what is excused, and adds the exceptions that excuse nothing.
func (list exceptions) filter(findings []Finding) []Finding {
	used := make([]bool, len(list))
	left := slices.DeleteFunc(findings, func(f Finding) bool {
		excused := false
		for i, e := range list {
			if e.excuses(f) {
				used[i], excused = true, true
			}
		}
		return excused
	})
	for i, e := range list {
		if !used[i] {
			left = append(left, Finding{
				Rule: e.rule, File: "tests/lint/allow.txt", Line: e.line,
				Message: e.where + " needs no exception any more",
			})
		}
	}
	return left
}
