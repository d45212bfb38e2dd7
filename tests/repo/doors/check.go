package doors

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/testutil/source"
)

// Violation is one thing that the floor plan forbids.
type Violation struct {
	File    string
	Line    int
	Problem string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Problem)
}

// clockReads are the ways to learn or to wait for the time.
var clockReads = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick",
	"time.NewTimer", "time.NewTicker",
}

// environmentReads are the ways to read environment variables.
var environmentReads = []string{
	"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "syscall.Getenv", "syscall.Environ",
}

// flagRegistry reads the environment too, under the names it is given.
const flagRegistry = "istio.io/pkg/env"

// Check reports what in the module goes against the plan, in the order of files.
func Check(m *source.Module, plan []room) []Violation {
	var found []Violation
	for _, file := range m.Files {
		here, ok := within(plan, file.Package())
		if !ok {
			found = append(found, Violation{file.Name, 1, "this package lies in no room: give it one in tests/repo/doors/rooms.go"})
			continue
		}
		c := checker{plan: plan, here: here, file: file}
		c.imports()
		c.mentions()
		found = append(found, c.found...)
	}
	found = append(found, undocumented(m)...)
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return found
}

// within finds the innermost room that holds a package.
func within(plan []room, pkg string) (room, bool) {
	var inner room
	for _, r := range plan {
		if below(pkg, r.path) && len(r.path) > len(inner.path) {
			inner = r
		}
	}
	return inner, inner.path != ""
}

// below reports whether a path is a folder or lies in it.
func below(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// checker looks at one file from its room.
type checker struct {
	plan  []room
	here  room
	file  *source.File
	found []Violation
}

func (c *checker) report(line int, format string, args ...any) {
	c.found = append(c.found, Violation{c.file.Name, line, fmt.Sprintf(format, args...)})
}

func (c *checker) imports() {
	for _, imp := range c.file.Imports() {
		if imp.Local != "" {
			c.door(imp)
			continue
		}
		if imp.Path == flagRegistry && c.here.path != features {
			c.report(imp.Line, "flags are registered in %s, not here", features)
		}
		if c.here.only != nil && !c.file.Test() && !slices.Contains(c.here.only, imp.Path) {
			c.report(imp.Line, "%s does without %s", c.here.path, imp.Path)
		}
		for _, banned := range c.here.without {
			if below(imp.Path, banned) {
				c.report(imp.Line, "%s does without %s", c.here.path, imp.Path)
			}
		}
		if imp.Path == "k8s.io/client-go/kubernetes/fake" && below(c.here.path, elections) {
			c.report(imp.Line, "the fake clientset does not check resourceVersion: it proves nothing about an election")
		}
	}
}

// door checks an import within the module.
func (c *checker) door(imp source.Import) {
	there, ok := within(c.plan, imp.Local)
	if !ok || there.path == c.here.path {
		return // the package without a room is reported at its own files
	}
	open := c.here.doors
	if c.file.Test() {
		open = slices.Concat(open, c.here.testDoors)
	}
	if !slices.ContainsFunc(open, func(door string) bool { return leads(door, there.path) }) {
		c.report(imp.Line, "%s has no door to %s", c.here.path, there.path)
	}
}

// leads reports whether a door opens to a room: to the one it names, or with
// "..." at its end to all below a folder.
func leads(door, to string) bool {
	if folder, all := strings.CutSuffix(door, "/..."); all {
		return below(to, folder)
	}
	return door == to
}

func (c *checker) mentions() {
	if c.file.Test() {
		return
	}
	if c.here.timeless {
		for _, use := range c.file.Uses(clockReads...) {
			c.report(use.Line, "%s reads no clock, so no %s", c.here.path, use.Name)
		}
	}
	if !c.here.environment && (c.here.environmentFile == "" || c.file.Name != c.here.path+"/"+c.here.environmentFile) {
		for _, use := range c.file.Uses(environmentReads...) {
			c.report(use.Line, "%s is for %s and the commands: pass the value down", use.Name, features)
		}
	}
}

// undocumented reports packages without a doc.go that says what they are for.
func undocumented(m *source.Module) []Violation {
	packages := map[string]*source.File{}
	for _, file := range m.Files {
		pkg := file.Package()
		if path.Base(file.Name) == "doc.go" {
			packages[pkg] = file
		} else if _, ok := packages[pkg]; !ok {
			packages[pkg] = nil
		}
	}
	var found []Violation
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		doc := packages[pkg]
		switch {
		case doc == nil:
			found = append(found, Violation{pkg, 0, "this package has no doc.go"})
		case !says(doc.Syntax):
			found = append(found, Violation{doc.Name, 1, "its comment does not begin with Package or Command and the name"})
		}
	}
	return found
}

func says(doc *ast.File) bool {
	text := doc.Doc.Text()
	if doc.Name.Name == "main" {
		return strings.HasPrefix(text, "Command ")
	}
	return strings.HasPrefix(text, "Package "+doc.Name.Name+" ")
}
