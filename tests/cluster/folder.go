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

// folder is the temporary folder of a cluster. It is locked while its process runs.
type folder struct {
	path string
	lock *os.File
}

// newFolder creates a folder, after deleting the folders of killed processes.
func newFolder() (*folder, error) {
	sweep()
	path, err := os.MkdirTemp("", folderPattern)
	if err != nil {
		return nil, fmt.Errorf("create folder of cluster: %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder of cluster: %w", err), os.RemoveAll(path))
	}
	return &folder{path: path, lock: lock}, nil
}

// lockFolder renames the lock after locking it: an unlocked lock means that the process has ended.
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

// file returns the path of a file in the folder.
func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder.
func (f *folder) remove() error {
	// Delete the folder first, because sweep deletes unlocked folders.
	err := errors.Join(os.RemoveAll(f.path), f.lock.Close())
	if err != nil {
		return fmt.Errorf("delete folder of cluster: %w", err)
	}
	return nil
}

// sweep deletes the folders of ended processes, and ignores errors.
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
