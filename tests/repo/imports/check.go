package imports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/testutil/source"
)

// Violation is a violation of an import rule.
type Violation struct {
	File    string
	Line    int
	Problem string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Problem)
}

// clockReads are the functions that read a clock or wait.
var clockReads = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick",
	"time.NewTimer", "time.NewTicker",
}

// environmentReads are the functions that read environment variables.
var environmentReads = []string{
	"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "syscall.Getenv", "syscall.Environ",
}

// flagRegistry also reads environment variables.
const flagRegistry = "istio.io/pkg/env"

// Check returns the violations in the module, ordered by file.
func Check(m *source.Module, plan []importRule) []Violation {
	var found []Violation
	for _, file := range m.Files {
		here, ok := within(plan, file.Package())
		if !ok {
			found = append(found, Violation{file.Name, 1, "this package has no import rule: add one in tests/repo/imports/rules.go"})
			continue
		}
		c := checker{plan: plan, here: here, file: file}
		c.imports()
		c.mentions()
		found = append(found, c.found...)
	}
	found = slices.Concat(found, undocumented(m), unexplained(m))
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return found
}

// within returns the rule of the innermost directory that contains a package.
func within(plan []importRule, pkg string) (importRule, bool) {
	var inner importRule
	for _, r := range plan {
		if below(pkg, r.path) && len(r.path) > len(inner.path) {
			inner = r
		}
	}
	return inner, inner.path != ""
}

// below reports whether a path is a directory or is inside it.
func below(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// checker checks one file.
type checker struct {
	plan  []importRule
	here  importRule
	file  *source.File
	found []Violation
}

func (c *checker) report(line int, format string, args ...any) {
	c.found = append(c.found, Violation{c.file.Name, line, fmt.Sprintf(format, args...)})
}

func (c *checker) imports() {
	for _, imp := range c.file.Imports() {
		if imp.Local != "" {
			c.check(imp)
			continue
		}
		if imp.Path == flagRegistry && c.here.path != features {
			c.report(imp.Line, "flags must be registered in %s", features)
		}
		if c.here.only != nil && !c.file.Test() && !slices.Contains(c.here.only, imp.Path) {
			c.report(imp.Line, "%s must not import %s", c.here.path, imp.Path)
		}
		for _, banned := range c.here.without {
			if below(imp.Path, banned) {
				c.report(imp.Line, "%s must not import %s", c.here.path, imp.Path)
			}
		}
	}
}

// local checks an import of a package of the module.
func (c *checker) check(imp source.Import) {
	there, ok := within(c.plan, imp.Local)
	if !ok || there.path == c.here.path {
		return // Check reports the package without a rule
	}
	open := c.here.allowed
	if c.file.Test() {
		open = slices.Concat(open, c.here.testImports)
	}
	if !slices.ContainsFunc(open, func(allowed string) bool { return leads(allowed, there.path) }) {
		c.report(imp.Line, "%s must not import %s", c.here.path, there.path)
	}
}

// leads reports whether an allowed path matches the path of a rule. "..." at the end matches everything below a directory.
func leads(allowed, to string) bool {
	if folder, all := strings.CutSuffix(allowed, "/..."); all {
		return below(to, folder)
	}
	return allowed == to
}

func (c *checker) mentions() {
	if c.file.Test() {
		return
	}
	if c.here.timeless {
		for _, use := range c.file.Uses(clockReads...) {
			c.report(use.Line, "%s must not read a clock: %s", c.here.path, use.Name)
		}
	}
	if !c.here.environment && (c.here.environmentFile == "" || c.file.Name != c.here.path+"/"+c.here.environmentFile) {
		for _, use := range c.file.Uses(environmentReads...) {
			c.report(use.Line, "only %[2]s and commands may use %[1]s: pass the value as an argument", use.Name, features)
		}
	}
}
