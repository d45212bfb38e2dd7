package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/tests/cluster"
)

// setUp creates folder, token and kubeconfig of the Pod. It retries until the Pod is deleted, and then returns false.
func (w *worker) setUp() bool {
	return retry(w.wanted, w.logger, "create files of Pod", func(ctx context.Context) error {
		err := os.MkdirAll(filepath.Join(w.dir, workFolder), 0o700)
		if err == nil {
			err = w.writeToken(ctx)
		}
		if err == nil {
			err = w.writeKubeconfig()
		}
		if err != nil {
			w.status.waiting("CreateContainerConfigError", err.Error())
		}
		return err
	})
}

// keepToken replaces the token until the Pod is gone.
func (w *worker) keepToken() {
	for apirequest.Pause(w.exists, w.node.options.TokenRefresh) == nil {
		retry(w.exists, w.logger, "refresh token of Pod", w.writeToken)
	}
}

// writeToken requests a token that is bound to the Pod, and replaces its file atomically.
func (w *worker) writeToken(ctx context.Context) error {
	token, err := cluster.PodToken(ctx, w.node.client, w.latest.Load())
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, tokenFile)
	if err := os.WriteFile(path+".new", []byte(token), 0o600); err != nil {
		return fmt.Errorf("write token of Pod: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write token of Pod: %w", err)
	}
	return nil
}

// writeKubeconfig writes a kubeconfig that refers to the token file.
func (w *worker) writeKubeconfig() error {
	config := rest.AnonymousClientConfig(w.node.options.Config)
	config.BearerTokenFile = filepath.Join(w.dir, tokenFile)
	return cluster.WriteKubeconfig(filepath.Join(w.dir, kubeconfigFile), config, w.namespace)
}
