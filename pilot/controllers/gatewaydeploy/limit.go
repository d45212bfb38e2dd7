package gatewaydeploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"text/template"
	"text/template/parse"
)

const (
	// maxCost bounds one execution of a template: the bytes that functions process, and nodeCost for each
	// executed node.
	maxCost  = 4 << 20
	nodeCost = 64
	// maxVerbs bounds the verbs of a format. Each verb can write a megabyte.
	maxVerbs = 100
	// chargeFunction is the function that the limit calls.
	chargeFunction = "incumbentCharge"
)

var errCost = errors.New("the template exceeds the limit of work; shorten its loops")

// limit adds a call of chargeFunction to each loop and each definition of a template. An execution cannot be
// interrupted otherwise.
func limit(t *template.Template) error {
	for _, one := range t.Templates() {
		if _, err := charged(one.Root, true); err != nil {
			return err
		}
	}
	return nil
}

// charged adds the calls below a list and returns the number of its nodes.
func charged(list *parse.ListNode, loop bool) (nodes int, err error) {
	if list == nil {
		return 0, nil
	}
	for _, node := range list.Nodes {
		nodes++
		var lists []*parse.ListNode
		isRange := false
		switch node := node.(type) {
		case *parse.RangeNode:
			lists = []*parse.ListNode{node.List, node.ElseList}
			isRange = true
		case *parse.IfNode:
			lists = []*parse.ListNode{node.List, node.ElseList}
		case *parse.WithNode:
			lists = []*parse.ListNode{node.List, node.ElseList}
		}
		for i, inner := range lists {
			n, err := charged(inner, isRange && i == 0)
			if err != nil {
				return 0, err
			}
			nodes += n
		}
	}
	if loop {
		call, err := template.New("limit").Funcs(functions).Parse(fmt.Sprintf("{{%s %d}}", chargeFunction, nodeCost*(nodes+1)))
		if err != nil {
			return 0, err
		}
		list.Nodes = append([]parse.Node{call.Root.Nodes[0]}, list.Nodes...)
	}
	return nodes, nil
}

// budget is the cost that one execution has left.
type budget struct{ left int }

func (b *budget) spend(cost int) error {
	if cost < 0 || cost > b.left {
		b.left = 0
		return errCost
	}
	b.left -= cost
	return nil
}

// functions returns the template functions, including the built-in functions that return text. JSON is valid
// YAML and quotes where needed.
func (b *budget) functions() template.FuncMap {
	return template.FuncMap{
		chargeFunction: func(cost int) (string, error) { return "", b.spend(cost) },
		"quote":        b.limited(func(args ...any) (string, error) { return toJSON(fmt.Sprint(args...)) }),
		"toJson":       b.limited(func(args ...any) (string, error) { return toJSON(args[0]) }),
		"print":        b.limited(func(args ...any) (string, error) { return fmt.Sprint(args...), nil }),
		"println":      b.limited(func(args ...any) (string, error) { return fmt.Sprintln(args...), nil }),
		"html":         b.limited(func(args ...any) (string, error) { return template.HTMLEscaper(args...), nil }),
		"js":           b.limited(func(args ...any) (string, error) { return template.JSEscaper(args...), nil }),
		"urlquery":     b.limited(func(args ...any) (string, error) { return template.URLQueryEscaper(args...), nil }),
		"printf": func(format string, args ...any) (string, error) {
			verbs := strings.Count(format, "%")
			if verbs > maxVerbs {
				return "", fmt.Errorf("a format may have at most %d verbs", maxVerbs)
			}
			if err := b.spend(len(format) + verbs*sizeOf(args)); err != nil {
				return "", err
			}
			text := fmt.Sprintf(format, args...)
			return text, b.spend(len(text))
		},
		"merge": func(all ...map[string]string) (map[string]string, error) {
			to := map[string]string{}
			for _, from := range all {
				if err := b.spend(len(from)); err != nil {
					return nil, err
				}
				maps.Copy(to, from)
			}
			return to, nil
		},
	}
}

// functions are the template functions without a budget, for parsing.
var functions = new(budget).functions()

// limited returns a function that spends the size of its arguments and of its result.
func (b *budget) limited(f func(args ...any) (string, error)) func(args ...any) (string, error) {
	return func(args ...any) (string, error) {
		if len(args) == 0 {
			return "", errors.New("an argument is missing")
		}
		if err := b.spend(sizeOf(args)); err != nil {
			return "", err
		}
		text, err := f(args...)
		if err != nil {
			return "", err
		}
		return text, b.spend(len(text))
	}
}

// sizeOf returns the size of the texts among the arguments.
func sizeOf(args []any) (size int) {
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			size += len(text)
		}
	}
	return size + len(args)
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
