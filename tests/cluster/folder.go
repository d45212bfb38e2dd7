package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	folderPattern = "incumbent-cluster-*"
	lockFile      = "lock"
)

// folder is the temporary folder of a cluster, locked as long as its starter lives.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes one, after removing those whose starters were killed.
func newFolder() (*folder, error) {
	sweep()
	path, err := os.MkdirTemp("", folderPattern)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's folder: %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the cluster's folder: %w", err), os.RemoveAll(path))
	}
	return &folder{path: path, lock: lock}, nil
}

// lockFolder locks under another name first: a folder with an unlocked lock is one
// without a starter.
func lockFolder(path string) (*os.File, error) {
	temporary := filepath.Join(path, lockFile+".new")
	lock, err := os.OpenFile(temporary, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := os.Rename(temporary, filepath.Join(path, lockFile)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// file is the path of a file in the folder.
func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder with all in it.
func (f *folder) remove() error {
	// The folder goes first: a sweep must not meet it unlocked.
	err := errors.Join(os.RemoveAll(f.path), f.lock.Close())
	if err != nil {
		return fmt.Errorf("removing the cluster's folder: %w", err)
	}
	return nil
}

// sweep removes the folders of starters that are gone. What cannot be removed, such as
// another user's, stays: it is in nobody's way.
func sweep() {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPattern))
	for _, path := range found {
		lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}
