package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
)

const (
	// image is what the Deployments call the server's program.
	image = "pilot"
	// olderImage is that of the older version, where there are two.
	olderImage = "pilot-older"
	// nodeName is the process node's; there is no other in a cluster of our own.
	nodeName = "incumbent"
	// port is where the servers answer.
	port = 15014
	// pagePort is where people look at them.
	pagePort = 15016
)

// lockNames are the names of all lock objects of all revisions.
func (set settings) lockNames() []string {
	names, perRevision := bootstrap.Elections(bootstrap.Config{Coordinator: set.coordinated})
	names = slices.Clone(names)
	for _, id := range perRevision {
		for _, revision := range set.revisions() {
			names = append(names, id+"-"+revision)
		}
	}
	return names
}

func namespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}
