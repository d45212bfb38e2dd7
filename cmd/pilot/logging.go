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

// logging is what the flags say of the log.
type logging struct {
	level  string
	asJSON bool
	target []string
}

var levels = map[string]log.Level{
	"debug": log.DebugLevel, "info": log.InfoLevel, "warn": log.WarnLevel, "error": log.ErrorLevel, "none": log.NoneLevel,
}

func (l *logging) declare(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "what to log: debug, info, warn, error or none; for one scope alone as scope:level, several with commas (warn,pilot:debug)")
	f.BoolVar(&l.asJSON, "log-as-json", false, "write each log line as JSON")
	f.StringArrayVar(&l.target, "log-target", []string{"stdout"}, "where to log to: stdout, stderr or a file; may be given several times")
}

// istioNames has flags in istiod's style, with underscores, mean ours.
func istioNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if name == "log-output-level" {
		name = "log-level"
	}
	return pflag.NormalizedName(name)
}

// configure sets Istio's log up. Scopes have to be registered before: the server's is.
func (l *logging) configure() error {
	istiolog.New()
	options := log.DefaultOptions()
	options.JSONEncoding, options.OutputPaths = l.asJSON, l.target
	scopes := slices.Sorted(maps.Keys(log.Scopes()))
	words := strings.Split(l.level, ",")
	// What names no scope is for all of them, wherever it stands.
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
