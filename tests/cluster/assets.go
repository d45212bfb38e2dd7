package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// assetsVariable is the variable of envtest with the folder of the programs.
const assetsVariable = "KUBEBUILDER_ASSETS"

// The programs.
const (
	etcdProgram              = "etcd"
	apiServerProgram         = "kube-apiserver"
	controllerManagerProgram = "kube-controller-manager"
)

// assets returns the folder of the programs: KUBEBUILDER_ASSETS, else the folder of the running program, else bin of the
// repository.
func assets(programs ...string) (string, error) {
	folder := os.Getenv(assetsVariable)
	if folder == "" {
		var err error
		if folder, err = ownAssets(); err != nil {
			return "", err
		}
	}
	for _, program := range programs {
		if _, err := exec.LookPath(filepath.Join(folder, program)); err != nil {
			return "", fmt.Errorf("%w: run `make tools` in the repository, or set %s to a folder with %s",
				err, assetsVariable, strings.Join(programs, ", "))
		}
	}
	return folder, nil
}

// ownAssets returns the folder of the running program if it contains kube-apiserver, else such a folder bin in a parent folder.
func ownAssets() (string, error) {
	has := func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, apiServerProgram))
		return err == nil
	}
	if self, err := os.Executable(); err == nil && has(filepath.Dir(self)) {
		return filepath.Dir(self), nil
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for ; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if bin := filepath.Join(folder, "bin"); has(bin) {
			return bin, nil
		}
	}
	return "", fmt.Errorf("no folder of etcd and kube-apiserver found: set %s, or run inside the repository after `make tools`", assetsVariable)
}
