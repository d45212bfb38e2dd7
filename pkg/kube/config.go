package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Source is the origin of a client configuration: Path if set, else List if set, else the service account of the pod.
type Source struct {
	// Path is one kubeconfig file.
	Path string
	// List has kubeconfig files to merge: the value of the environment variable KUBECONFIG. They are separated by colons (semicolons on Windows). Missing files are ignored,
	// as in kubectl, but at least one must exist.
	List string
	// Context is the context to use. If empty, it is the current context of the files.
	Context string
	// Flag is the command-line flag for Path, for error messages. Optional.
	Flag string
}

// advice returns how the caller can choose an API server.
func (s Source) advice() string {
	switch {
	case s.Flag != "" && s.Path != "":
		return "set " + s.Flag + "=FILE"
	case s.Flag != "":
		return "set " + s.Flag + "=FILE or KUBECONFIG, or run in a pod"
	}
	return "pass a kubeconfig file as Source.Path, set the environment variable KUBECONFIG and pass it as Source.List, or run in a pod"
}

// LoadConfig reads a configuration. An error names the file and the fix.
func LoadConfig(from Source) (*rest.Config, error) {
	rules, name, err := from.rules()
	if err != nil {
		return nil, err
	}
	if rules == nil {
		return from.inCluster(rest.InClusterConfig)
	}
	files, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w; %s", name, err, from.advice())
	}
	chosen := cmp.Or(from.Context, files.CurrentContext)
	if chosen == "" && len(files.Clusters) == 0 {
		return nil, fmt.Errorf("kubeconfig %s has no cluster; %s", name, from.advice())
	}
	if _, ok := files.Contexts[chosen]; chosen != "" && !ok {
		return nil, fmt.Errorf("kubeconfig %s has no context %q; `kubectl config get-contexts` lists them", name, chosen)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*files, chosen, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %q: %w; %s", name, chosen, err, from.advice())
	}
	return config, nil
}

// rules returns the loading rules of clientcmd for the files, or nil without files, and the name of the files for errors.
func (s Source) rules() (*clientcmd.ClientConfigLoadingRules, string, error) {
	if s.Path != "" {
		if err := readable(s.Path); err != nil {
			return nil, "", fmt.Errorf("read kubeconfig %s: %w; %s", s.Path, err, s.advice())
		}
		return &clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Path}, s.Path, nil
	}
	if strings.Trim(s.List, string(filepath.ListSeparator)) == "" {
		return nil, "", nil
	}
	var paths []string
	var missing error
	for _, path := range filepath.SplitList(s.List) {
		err := readable(path)
		if err == nil {
			paths = append(paths, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("read kubeconfig %s of KUBECONFIG: %w; %s", path, err, s.advice())
		} else {
			missing = errors.Join(missing, err)
		}
	}
	if len(paths) == 0 {
		return nil, "", fmt.Errorf("none of the files of KUBECONFIG=%s exists: %w; %s", s.List, missing, s.advice())
	}
	return &clientcmd.ClientConfigLoadingRules{Precedence: paths}, strings.Join(paths, string(filepath.ListSeparator)), nil
}

// readable returns an error if the loader cannot read the file. The error of the loader is less clear.
func readable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err) // the caller names the file
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return errors.New("it is a directory")
	}
	return nil
}

func (s Source) inCluster(read func() (*rest.Config, error)) (*rest.Config, error) {
	config, err := read()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("no API server: no kubeconfig, and not in a pod; %s", s.advice())
	}
	if err != nil {
		return nil, fmt.Errorf("service account of the pod: %w; %s", err, s.advice())
	}
	return config, nil
}
