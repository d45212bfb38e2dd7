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
	complain := func(err error) {
		w.logger.Warn("failed to create files of Pod; retrying", "err", err)
		w.status.waiting("CreateContainerConfigError", err.Error())
	}
	return retry(w.wanted, complain, func(ctx context.Context) error {
		if err := os.MkdirAll(filepath.Join(w.dir, workFolder), 0o700); err != nil {
			return fmt.Errorf("create folder of Pod: %w", err)
		}
		if err := w.writeToken(ctx); err != nil {
			return err
		}
		return w.writeKubeconfig()
	})
}

// keepToken replaces the token until the Pod is gone.
func (w *worker) keepToken() {
	complain := func(err error) { w.logger.Warn("failed to refresh token of Pod; retrying", "err", err) }
	for apirequest.Pause(w.exists, w.node.options.TokenRefresh) == nil {
		retry(w.exists, complain, w.writeToken)
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
