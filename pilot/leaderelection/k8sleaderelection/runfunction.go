package k8sleaderelection

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
)

// runFunction is a run function with its name in logs.
type runFunction struct {
	name string
	run  func(context.Context) error
}

// functions returns OnStartedLeading and RunFunctions.
func (c LeaderElectionConfig) functions() []runFunction {
	all := make([]runFunction, 0, len(c.RunFunctions)+1)
	if started := c.Callbacks.OnStartedLeading; started != nil {
		all = append(all, runFunction{FunctionName(started), func(ctx context.Context) error { started(ctx); return nil }})
	}
	for i, f := range c.RunFunctions {
		r := runFunction{run: f}
		if i < len(c.RunFunctionNames) {
			r.name = c.RunFunctionNames[i]
		} else {
			r.name = FunctionName(f)
		}
		all = append(all, r)
	}
	return all
}

// FunctionName returns the name of a Go function with its file and line, for RunFunctionNames.
func FunctionName(f any) string {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Func || v.IsNil() {
		return fmt.Sprintf("%T", f)
	}
	pc := v.Pointer()
	fn := runtime.FuncForPC(pc)
	if fn == nil {
		return fmt.Sprintf("%T", f)
	}
	file, line := fn.FileLine(pc)
	return fmt.Sprintf("%s (%s:%d)", fn.Name(), filepath.Base(file), line)
}
