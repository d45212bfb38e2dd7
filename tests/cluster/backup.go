package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Backup is a copy of etcd's data in the folder of the cluster.
type Backup struct{ path string }

// dataDir returns the data folder of etcd.
func (c *Cluster) dataDir() string { return c.folder.file("etcd") }

// Backup copies etcd's data. It stops etcd (SIGSTOP) for the copy, so the copy is like the data after a crash.
func (c *Cluster) Backup() (*Backup, error) {
	path, err := os.MkdirTemp(c.folder.path, "etcd-backup-*")
	if err != nil {
		return nil, fmt.Errorf("backing up: %w", err)
	}
	err = c.etcd.Signal(syscall.SIGSTOP) // returns when all threads have stopped
	if err == nil {
		err = errors.Join(os.CopyFS(path, os.DirFS(c.dataDir())), c.etcd.Signal(syscall.SIGCONT))
	}
	if err != nil {
		return nil, fmt.Errorf("backing up: %w", err)
	}
	return &Backup{path}, nil
}

// Restore restores a backup. It kills the API server, starts etcd with the old data, and starts the API server. resourceVersions are
// assigned a second time. It returns when the API server is ready.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	err := errors.Join(c.api.Kill(), c.etcd.Kill(), os.RemoveAll(c.dataDir()))
	if err == nil {
		err = os.CopyFS(c.dataDir(), os.DirFS(b.path))
	}
	if err == nil {
		// etcd rejects a folder that other users can read.
		err = os.Chmod(c.dataDir(), 0o700)
	}
	if err == nil {
		err = c.startEtcd(ctx)
	}
	if err == nil {
		err = c.api.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	return nil
}
