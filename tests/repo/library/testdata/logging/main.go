// Command logging imports the library and logs as it would without.
package main

import (
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime"

	_ "incumbent.dev/incumbent/pilot/leaderelection"
	_ "incumbent.dev/incumbent/pilot/leaderelection/gate"
	_ "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	_ "incumbent.dev/incumbent/pkg/kube"
	_ "incumbent.dev/incumbent/pkg/revisions"
)

func main() {
	log.SetFlags(0)
	log.Print("log, to stderr")
	slog.Info("slog, by log's default")
	slog.Debug("not shown: the level is info")
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	slog.Debug("slog, by the program's handler")
	log.Print("log, by the program's handler")
	fmt.Fprintln(os.Stderr, "goroutines:", runtime.NumGoroutine())
}
