package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Source says where the configuration of a client comes from: the first of Path, List
// and the pod's own service account that is given.
type Source struct {
	// Path is one kubeconfig file, as --kubeconfig gives it.
	Path string
	// List is a list of kubeconfig files to merge, as KUBECONFIG gives it: separated by
	// colons (semicolons on Windows). Files that do not exist are passed over as kubectl
	// does, but one of them must exist.
	List string
	// Context is the context to use; "" means the files' current one.
	Context string
	// Flag is the command-line flag for Path, for errors; "" means --kubeconfig, for which KUBECONFIG and a pod's own
	// service account do as well.
	Flag string
}

// wayOut is of every error about where to find the API server that has no other.
const wayOut = "give --kubeconfig=FILE or set KUBECONFIG, or run in a cluster's pod with neither"

// wayOut ends every error about where to find the API server.
func (s Source) wayOut() string {
	if s.Flag != "" {
		return "give " + s.Flag + "=FILE"
	}
	return wayOut
}

// LoadConfig reads a configuration. Errors name the file and what to do.
func LoadConfig(from Source) (*rest.Config, error) {
	rules, name, err := from.rules()
	if err != nil {
		return nil, err
	}
	if rules == nil {
		return inCluster(rest.InClusterConfig)
	}
	files, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w; %s", name, err, from.wayOut())
	}
	chosen := from.Context
	if chosen == "" {
		chosen = files.CurrentContext
	}
	if chosen == "" && len(files.Clusters) == 0 {
		return nil, fmt.Errorf("kubeconfig %s names no cluster; %s", name, from.wayOut())
	}
	if _, ok := files.Contexts[chosen]; chosen != "" && !ok {
		return nil, fmt.Errorf("kubeconfig %s has no context %q; `kubectl config get-contexts` lists them", name, chosen)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*files, chosen, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %q: %w; %s", name, chosen, err, from.wayOut())
	}
	return config, nil
}

// rules are clientcmd's for the files, nil when none are given, and the name for them in errors.
func (s Source) rules() (*clientcmd.ClientConfigLoadingRules, string, error) {
	if s.Path != "" {
		if err := readable(s.Path); err != nil {
			return nil, "", fmt.Errorf("reading kubeconfig %s: %w; %s", s.Path, err, s.wayOut())
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
			return nil, "", fmt.Errorf("reading kubeconfig %s of KUBECONFIG: %w; %s", path, err, s.wayOut())
		} else {
			missing = errors.Join(missing, err)
		}
	}
	if len(paths) == 0 {
		return nil, "", fmt.Errorf("none of the files of KUBECONFIG=%s exists: %w; %s", s.List, missing, s.wayOut())
	}
	return &clientcmd.ClientConfigLoadingRules{Precedence: paths}, strings.Join(paths, string(filepath.ListSeparator)), nil
}

// readable opens a file as the loader will, since the loader's own error is less clear.
func readable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err) // the caller names the file
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return errors.New("it is a folder")
	}
	return nil
}

func inCluster(read func() (*rest.Config, error)) (*rest.Config, error) {
	config, err := read()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("no API server is known: no kubeconfig is given and this is not a cluster's pod; %s", wayOut)
	}
	if err != nil {
		return nil, fmt.Errorf("the pod's own service account: %w; %s", err, wayOut)
	}
	return config, nil
}
