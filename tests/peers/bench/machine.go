package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// machine describes the machine.
func machine() string {
	return fmt.Sprintf("%d cores (%s), %s of memory, Linux, %s",
		runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory(), runtime.Version())
}

// field returns the first value of a name in a file of "name : value" lines.
func field(path, name string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if before, after, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(after)
		}
	}
	return "unknown"
}

func memory() string {
	kb, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d GiB", (kb+1<<19)>>20)
}

// versions returns the versions of the electors by library.
func versions() map[string]string {
	versions := map[string]string{Ours: commit()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, dep := range info.Deps {
		switch dep.Path {
		case "istio.io/istio":
			versions[Istio] = dep.Version[strings.LastIndexByte(dep.Version, '-')+1:]
		case "k8s.io/client-go":
			versions[ClientGo] = dep.Version
		}
	}
	return versions
}

// commit returns the measured commit, with a + for uncommitted changes.
var commit = sync.OnceValue(func() string {
	id, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	// Only compiled files count.
	diff, err := exec.Command("git", "status", "--porcelain", "--", "../../pilot", "../../pkg", "../../go.mod").Output()
	dirty := ""
	if err != nil || len(bytes.TrimSpace(diff)) > 0 {
		dirty = "+"
	}
	return strings.TrimSpace(string(id)) + dirty
})

// ownCPU returns the CPU time of this process in seconds.
func ownCPU() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return (time.Duration(usage.Utime.Nano()) + time.Duration(usage.Stime.Nano())).Seconds()
}
