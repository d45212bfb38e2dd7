package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// teardownLimit bounds the wait for the end of everything in a cluster that stays.
const teardownLimit = time.Minute

// end takes everything down: the pods first, so that they can release their locks, and
// the cluster last. From a cluster that was there before it takes away what was
// put into it.
func (s *stage) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownLimit)
	defer cancel()
	var errs []error
	guest := s.objects != nil && s.cluster.External()
	if guest {
		// While the node runs: only it can end its pods.
		errs = append(errs, s.uninstall(ctx), s.awaitNoPods(ctx))
	}
	s.stopNode()
	s.pods.Wait()
	if guest {
		errs = append(errs, s.removeBundles(ctx), s.removeNode(ctx), s.objects.remove(ctx))
	}
	s.stopWatching()
	s.watchers.Wait()
	if s.watched != nil {
		s.watched.wait()
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(errs...)
}

func (s *stage) awaitNoPods(ctx context.Context) error {
	return s.watched.await(ctx, teardownLimit, func(v view) (bool, string) {
		return len(v.pods) == 0, fmt.Sprintf("%d pods are left", len(v.pods))
	})
}

// removeBundles deletes what the namespace controller has spread.
func (s *stage) removeBundles(ctx context.Context) error {
	var errs []error
	v, _ := s.watched.now()
	for namespace, bundle := range v.bundles {
		if bundle != s.bundle {
			continue
		}
		err := s.kube.CoreV1().ConfigMaps(namespace).Delete(ctx, rootCertName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting ConfigMap %s/%s: %w", namespace, rootCertName, err))
		}
	}
	return errors.Join(errs...)
}

func (s *stage) removeNode(ctx context.Context) error {
	err := s.kube.CoreV1().Nodes().Delete(ctx, nodeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", nodeName, err)
	}
	return nil
}
