package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Backup is etcd's data at one moment. It lies in the cluster's folder.
type Backup struct{ path string }

// standstillTimeout bounds the wait until etcd stands still.
const standstillTimeout = 5 * time.Second

// dataDir is where etcd keeps its data.
func (c *Cluster) dataDir() string { return c.folder.file("etcd") }

// Backup keeps etcd's present data. For that etcd stands still for a moment: what the
// copy has is what a crash would have left at that moment.
func (c *Cluster) Backup(ctx context.Context) (*Backup, error) {
	if c.External() {
		return nil, errors.New("backing up: the cluster is an external one")
	}
	path, err := os.MkdirTemp(c.folder.path, "etcd-backup-*")
	if err != nil {
		return nil, fmt.Errorf("backing up: %w", err)
	}
	err = c.etcd.Signal(syscall.SIGSTOP)
	if err == nil {
		err = errors.Join(c.copyStill(ctx, path), c.etcd.Signal(syscall.SIGCONT))
	}
	if err != nil {
		return nil, fmt.Errorf("backing up: %w", err)
	}
	return &Backup{path}, nil
}

// copyStill copies the data once no thread of etcd runs any more.
func (c *Cluster) copyStill(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, standstillTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !stopped(c.etcd.Pid()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("etcd does not stand still: %w", ctx.Err())
		}
	}
	return os.CopyFS(to, os.DirFS(c.dataDir()))
}

// stopped reports whether every thread of a process is stopped by a signal.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		// The state follows the program's name, which is in brackets.
		_, state, found := bytes.Cut(stat, []byte(") "))
		if err != nil || !found || state[0] != 'T' {
			return false
		}
	}
	return true
}

// Restore puts a backup back, as after a disaster: the API servers end, etcd begins again
// with the old data and gives versions out a second time, and the API servers that ran
// are started again. It returns when they are ready. A further Restore may follow.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	ran := c.runningServers()
	for _, server := range ran {
		if err := server.Kill(); err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
	}
	if err := c.etcd.Kill(); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	err := os.RemoveAll(c.dataDir())
	if err == nil {
		err = os.CopyFS(c.dataDir(), os.DirFS(b.path))
	}
	if err == nil {
		// etcd does not start with a folder that others may read.
		err = os.Chmod(c.dataDir(), 0o700)
	}
	if err == nil {
		err = c.startEtcd(ctx)
	}
	for _, server := range ran {
		if err == nil {
			err = server.Start(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	return nil
}

// runningServers are the API servers that neither were stopped nor have ended by themselves.
func (c *Cluster) runningServers() (ran []*APIServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, server := range append([]*APIServer{c.api}, c.further...) {
		server.mu.Lock()
		if server.running() {
			ran = append(ran, server)
		}
		server.mu.Unlock()
	}
	return ran
}
