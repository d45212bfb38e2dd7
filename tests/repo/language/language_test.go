package language

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

const root = "../../.."

const (
	// maxConstructions is the limit of indirect constructions per 1,000 words.
	maxConstructions = 3.0
	// maxWords is the length of a long sentence, and maxLongShare the limit of long sentences in percent.
	maxWords     = 25
	maxLongShare = 10
	// maxTestName is the longest name of a test.
	maxTestName = 50
)

var (
	word = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)

	constructions = regexp.MustCompile(`(?i)\b(` +
		`(is|are|was|by|of|from|to|in|on|for|with|and|than|shows?) what` +
		`|what (is|was|has|they|it|comes|others?)` +
		`|(of|by|in|from|for|with|on) which|whereby|thereof` +
		`|(that|those) of|none (does|is|has)` +
		`|(says|said|told|tells|hears?|heard|asks?|asked|knows?|known|lives?|comes?) (so|that|it|by|of|to|who|what|how|whether|when|at|the|itself|nothing)` +
		`|stands?|stood|goes on|goes by|leads on|by itself|gives? up|takes? over|as it was` +
		`)\b`)

	sentenceName = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)((What|Who|Whose|When|Which|How|Why|Until|Since|An|The|One|No|Two|It|All)[A-Z]|A[A-Z][a-z])`)
)

// bannedIdentifiers are parts of identifiers for which the glossary has another word.
var bannedIdentifiers = regexp.MustCompile(`(?i)nobody|somebody|whoever|whatever|onethat|onewho|thatof|anew$|beside|atonce|takeover|obey`)

// source is a parsed Go file.
type source struct {
	path   string
	syntax *ast.File
	test   bool
}

func TestStringLiterals(t *testing.T) {
	banned := bannedWords(t)
	var texts []string
	for _, file := range goFiles(t) {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || len(word.FindAllString(text, 4)) < 4 {
				return true
			}
			if found := banned.FindString(text); found != "" && !isWordList(file.path) {
				t.Errorf("%s: the text %q contains %q", file.path, shorten(text), found)
			}
			if !file.test {
				texts = append(texts, text)
			}
			return true
		})
	}
	checkConstructions(t, "string literals", texts)
}

func TestComments(t *testing.T) {
	var production, tests []string
	for _, file := range goFiles(t) {
		for _, group := range file.syntax.Comments {
			if file.test {
				tests = append(tests, group.Text())
			} else {
				production = append(production, group.Text())
			}
		}
	}
	checkConstructions(t, "comments", production)
	checkConstructions(t, "comments in tests", tests)
}

func TestDocuments(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	harness.Must(t, err)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	code := regexp.MustCompile("(?s)```.*?```")
	var texts []string
	for _, page := range pages {
		content, err := os.ReadFile(page)
		harness.Must(t, err)
		texts = append(texts, code.ReplaceAllString(string(content), ""))
	}
	checkConstructions(t, "documents", texts)
	all, long := 0, 0
	for _, text := range texts {
		for _, sentence := range sentences(text) {
			all++
			if len(word.FindAllString(sentence, -1)) > maxWords {
				long++
			}
		}
	}
	if share := 100 * long / max(1, all); share > maxLongShare {
		t.Errorf("%d %% of %d sentences in documents have more than %d words, want at most %d %%", share, all, maxWords, maxLongShare)
	}
}

func TestNames(t *testing.T) {
	for _, file := range goFiles(t) {
		if isWordList(file.path) {
			continue
		}
		for _, declaration := range file.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !strings.HasSuffix(file.path, "_test.go") || !strings.HasPrefix(function.Name.Name, "Test") {
				continue
			}
			if name := function.Name.Name; len(name) > maxTestName || sentenceName.MatchString(name) {
				t.Errorf("%s: name the test %s TestSubject_Condition, with at most %d characters", file.path, name, maxTestName)
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if id, ok := node.(*ast.Ident); ok && id.Name != "NoBody" && bannedIdentifiers.MatchString(id.Name) {
				t.Errorf("%s: the identifier %s: the glossary has another word", file.path, id.Name)
			}
			return true
		})
	}
}

// TestComments_EachName requires a comment for each exported field, constant and interface method that other programs can use. A
// comment above that contains the name suffices. Lint checks functions, types and variables.
func TestComments_EachName(t *testing.T) {
	checked := 0
	for _, file := range goFiles(t) {
		if path := filepath.ToSlash(file.path); file.test || file.syntax.Name.Name == "main" || !regexp.MustCompile(`^(pilot|pkg|adapters)/`).MatchString(path) ||
			strings.Contains(path, "/internal/") {
			continue
		}
		above := ""
		check := func(names []*ast.Ident, comments ...*ast.CommentGroup) {
			for _, comment := range comments {
				if comment != nil {
					above = comment.Text()
					return
				}
			}
			for _, name := range names {
				checked++
				if name.IsExported() && !regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(above) {
					t.Errorf("%s: %s has no comment", file.path, name.Name)
				}
			}
		}
		for _, decl := range file.syntax.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			above = group.Doc.Text()
			for _, spec := range group.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					if group.Doc == nil || group.Tok != token.CONST {
						check(spec.Names, spec.Doc, spec.Comment)
					}
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					ast.Inspect(spec.Type, func(node ast.Node) bool {
						if field, ok := node.(*ast.Field); ok {
							check(field.Names, field.Doc, field.Comment)
						}
						_, function := node.(*ast.FuncType)
						return !function
					})
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no name was checked")
	}
}

// TestSleep requires that tests wait for conditions. In a bubble of synctest, time.Sleep takes no time. A benchmark may sleep.
func TestSleep(t *testing.T) {
	calls := func(node ast.Node, name, function string) *ast.CallExpr {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return nil
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != function {
			return nil
		}
		if id, ok := selector.X.(*ast.Ident); !ok || id.Name != name {
			return nil
		}
		return call
	}
	bubbles := 0
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file.path, "_test.go") || strings.HasSuffix(file.path, "bench_test.go") {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if calls(node, "synctest", "Test") != nil {
				bubbles++
				return false
			}
			if calls(node, "time", "Sleep") != nil {
				t.Errorf("%s: wait for a condition instead of sleeping", file.path)
			}
			return true
		})
	}
	if bubbles == 0 {
		t.Error("no bubble was found")
	}
}

func TestSentences(t *testing.T) {
	got := sentences("# Title\n\nThe leader renews. A candidate\nwaits for it.\n\n| a | b |\n\n- an item\n")
	if len(got) != 2 || got[1] != "A candidate waits for it." {
		t.Errorf("sentences: %q", got)
	}
}

// checkConstructions fails if the texts use too many indirect constructions.
func checkConstructions(t *testing.T, name string, texts []string) {
	t.Helper()
	text := strings.Join(texts, "\n")
	words := len(word.FindAllString(text, -1))
	found := constructions.FindAllString(text, -1)
	if rate := 1000 * float64(len(found)) / float64(max(1, words)); rate > maxConstructions {
		t.Errorf("%s: %.1f indirect constructions per 1,000 words, want at most %.1f; among them %q",
			name, rate, maxConstructions, found[:min(len(found), 20)])
	}
}

// sentences returns the sentences of paragraphs, without headings, lists and tables.
func sentences(text string) (all []string) {
	end := regexp.MustCompile(`([.!?])\s+([A-Z])`)
	for _, paragraph := range regexp.MustCompile(`\n\s*\n`).Split(text, -1) {
		if trimmed := strings.TrimLeft(paragraph, " \n"); trimmed == "" || strings.ContainsAny(trimmed[:1], "|#-<!") {
			continue
		}
		line := strings.Join(strings.Fields(paragraph), " ")
		for _, sentence := range strings.Split(end.ReplaceAllString(line, "$1\n$2"), "\n") {
			if len(word.FindAllString(sentence, 3)) > 2 {
				all = append(all, sentence)
			}
		}
	}
	return all
}

// bannedWords returns an expression of the words that vale rejects in comments.
func bannedWords(t *testing.T) *regexp.Regexp {
	t.Helper()
	styles, err := filepath.Glob(filepath.Join(root, ".vale", "styles", "Plain", "*.yml"))
	if err != nil || len(styles) == 0 {
		t.Fatalf("no styles: %v", err)
	}
	var words []string
	for _, path := range styles {
		content, err := os.ReadFile(path)
		harness.Must(t, err)
		var style struct {
			Tokens []string          `json:"tokens"`
			Swap   map[string]string `json:"swap"`
		}
		if err := yaml.Unmarshal(content, &style); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		words = append(words, style.Tokens...)
		for from := range style.Swap {
			words = append(words, from)
		}
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
}

// goFiles returns the Go files of all modules of the repository.
func goFiles(t *testing.T) (files []source) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		files = append(files, source{
			path: relative, syntax: syntax,
			test: strings.HasSuffix(name, "_test.go") || strings.HasPrefix(relative, "tests"+string(filepath.Separator)),
		})
		return err
	})
	harness.Must(t, err)
	return files
}

// isWordList reports whether a file lists the rejected words.
func isWordList(path string) bool {
	return filepath.ToSlash(filepath.Dir(path)) == "tests/repo/language"
}

func shorten(text string) string {
	return text[:min(len(text), 120)]
}
