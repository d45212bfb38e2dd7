package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"istio.io/pkg/log"

	"incumbent.dev/incumbent/internal/istiolog"
)

// logging has the values of the log flags.
type logging struct {
	level  string
	asJSON bool
	target []string
}

var levels = map[string]log.Level{
	"debug": log.DebugLevel, "info": log.InfoLevel, "warn": log.WarnLevel, "error": log.ErrorLevel, "none": log.NoneLevel,
}

func (l *logging) declare(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "log level: debug, info, warn, error or none. Use scope:level for one scope and commas for several (warn,pilot:debug)")
	f.BoolVar(&l.asJSON, "log-as-json", false, "write each log line as JSON")
	f.StringArrayVar(&l.target, "log-target", []string{"stdout"}, "log output: stdout, stderr or a file; can be repeated")
}

// istioNames maps the flags of istiod, with underscores, to the flags of pilot.
func istioNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if name == "log-output-level" {
		name = "log-level"
	}
	return pflag.NormalizedName(name)
}

// configure configures Istio's log. The server's scope must be registered first.
func (l *logging) configure() error {
	istiolog.New()
	options := log.DefaultOptions()
	options.JSONEncoding = l.asJSON
	options.OutputPaths = l.target
	scopes := slices.Sorted(maps.Keys(log.Scopes()))
	words := strings.Split(l.level, ",")
	// A level without a scope applies to all scopes, in any position.
	slices.SortStableFunc(words, func(a, b string) int { return strings.Count(a, ":") - strings.Count(b, ":") })
	for _, word := range words {
		scope, name, one := strings.Cut(word, ":")
		if !one {
			scope, name = "", word
		}
		level, ok := levels[name]
		if !ok {
			return fmt.Errorf("--log-level=%s: %q is not one of debug, info, warn, error, none", l.level, name)
		}
		if one && !slices.Contains(scopes, scope) {
			return fmt.Errorf("--log-level=%s: unknown scope %q; the scopes are %s", l.level, scope, strings.Join(scopes, ", "))
		}
		for _, s := range scopes {
			if !one || s == scope {
				options.SetOutputLevel(s, level)
			}
		}
	}
	if err := log.Configure(options); err != nil {
		return fmt.Errorf("--log-target=%s: %w", strings.Join(l.target, ","), err)
	}
	return nil
}
