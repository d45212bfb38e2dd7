package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// setUp makes the Pod's files: folder, token, kubeconfig. It tries until the Pod is not
// wanted any more, and then reports false.
func (w *worker) setUp() bool {
	complain := func(err error) {
		w.logger.Warn("a Pod waits for its files", "err", err)
		w.status.waiting("CreateContainerConfigError", err.Error())
	}
	return retry(w.wanted, complain, func(ctx context.Context) error {
		if err := os.MkdirAll(filepath.Join(w.dir, workFolder), 0o700); err != nil {
			return fmt.Errorf("making the Pod's folder: %w", err)
		}
		if err := w.writeToken(ctx); err != nil {
			return err
		}
		return w.writeKubeconfig()
	})
}

// keepToken replaces the token in time, as long as there is a Pod.
func (w *worker) keepToken() {
	complain := func(err error) { w.logger.Warn("a Pod's token gets old", "err", err) }
	for kube.Pause(w.exists, w.node.options.TokenRefresh) == nil {
		retry(w.exists, complain, w.writeToken)
	}
}

// writeToken requests a token that is bound to the Pod and puts it into its file at once
// whole: readers see the old or the new one.
func (w *worker) writeToken(ctx context.Context) error {
	account := w.latest.Load().Spec.ServiceAccountName
	seconds := int64(w.node.options.TokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: w.name, UID: w.uid,
		},
	}}
	granted, err := w.node.client.CoreV1().ServiceAccounts(w.namespace).
		CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token of service account %s/%s: %w", w.namespace, account, err)
	}
	path := filepath.Join(w.dir, tokenFile)
	if err := os.WriteFile(path+".new", []byte(granted.Status.Token), 0o600); err != nil {
		return fmt.Errorf("writing the Pod's token: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing the Pod's token: %w", err)
	}
	return nil
}

// writeKubeconfig points at the token's file, which clients read again now and then.
func (w *worker) writeKubeconfig() error {
	config := rest.AnonymousClientConfig(w.node.options.Config)
	config.BearerTokenFile = filepath.Join(w.dir, tokenFile)
	return cluster.WriteKubeconfig(filepath.Join(w.dir, kubeconfigFile), config, w.namespace)
}
