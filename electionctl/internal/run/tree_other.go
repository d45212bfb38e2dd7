//go:build unix && !linux

package run

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

var executable, _ = os.Executable()

func deadline(end k8sleaderelection.Validity) int64 { return end.Wall }

// alarm is a timer of the wall clock.
type alarm struct{ timer *time.Timer }

func newAlarm() (alarm, error) { return alarm{time.NewTimer(time.Hour)}, nil }

func (a alarm) set(end int64) { a.timer.Reset(time.Until(time.Unix(0, end))) } //nolint:forbidigo // of the program

// kill waits for the alarm, and kills all processes.
func (a alarm) kill() {
	<-a.timer.C
	killForever()
}

func adoptOrphans() error { return nil }

// attributes let the program be in the process group of the supervisor, which does not end by the signals for the group.
func attributes() *syscall.SysProcAttr {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	return nil
}

// supervisorAttributes let supervisor and program form a process group.
func supervisorAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalTree sends a signal to the process group of the program.
func signalTree(s syscall.Signal) int {
	_ = syscall.Kill(0, s)
	return 0
}

// killOrphans kills what a supervisor left that has ended.
func killOrphans(supervisor int) { _ = syscall.Kill(-supervisor, syscall.SIGKILL) }
