package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	folderPattern = "incumbent-cluster-*"
	// starting precedes the name of a folder that is not locked yet.
	starting = "starting-"
)

// folder is the temporary folder of a cluster. It is locked while its process runs.
type folder struct {
	path string
	lock *os.File
}

// newFolder creates a folder, after deleting the folders of killed processes.
func newFolder() (*folder, error) {
	sweep()
	created, err := os.MkdirTemp("", starting+folderPattern)
	if err != nil {
		return nil, fmt.Errorf("create folder of cluster: %w", err)
	}
	f := &folder{path: filepath.Join(filepath.Dir(created), strings.TrimPrefix(filepath.Base(created), starting))}
	f.lock, err = lockFolder(created)
	if err == nil {
		err = os.Rename(created, f.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder of cluster: %w", err), os.RemoveAll(created))
	}
	return f, nil
}

// lockFolder fails if another process has locked the folder.
func lockFolder(path string) (*os.File, error) {
	lock, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
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
		if lock, err := lockFolder(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}
