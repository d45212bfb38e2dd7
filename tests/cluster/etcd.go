package cluster

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
	// etcdGrace limits the shutdown of etcd.
	etcdGrace = 5 * time.Second
)

// startEtcd starts etcd and waits until it is healthy. It listens without TLS on an address of the cluster.
func (c *Cluster) startEtcd(ctx context.Context) error {
	clients := fmt.Sprintf("http://%s:%d", c.address, etcdClientPort)
	peers := fmt.Sprintf("http://%s:%d", c.address, etcdPeerPort)
	etcd, err := c.run(etcdProgram, c.etcdArguments(clients, peers))
	if err != nil {
		return err
	}
	c.etcd, c.etcdURL = etcd, clients
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return await(ctx, "etcd is healthy", etcd, Healthy(client, clients+"/health"))
}

// etcdArguments returns the command line.
func (c *Cluster) etcdArguments(clients, peers string) []string {
	return []string{
		"--name=default",
		"--data-dir=" + c.folder.file("etcd"),
		"--listen-client-urls=" + clients,
		"--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers,
		"--initial-advertise-peer-urls=" + peers,
		"--initial-cluster=default=" + peers,
		"--log-level=warn",
		// It has no peers, and its data is temporary.
		"--heartbeat-interval=10",
		"--election-timeout=50",
		"--unsafe-no-fsync",
	}
}
