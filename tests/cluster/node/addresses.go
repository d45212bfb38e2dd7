package node

import (
	"fmt"
	"sync"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

// addresses hands out the addresses of a block, those never used first, and then the
// one that was given back longest ago: a Pod does not inherit the connections that others
// keep trying to its predecessor.
type addresses struct {
	block *loopback.Block

	mu   sync.Mutex
	next int
	free []string
}

func newAddresses() (*addresses, error) {
	block, err := loopback.Reserve()
	if err != nil {
		return nil, err
	}
	return &addresses{block: block, next: 1}, nil
}

func (a *addresses) take() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next <= loopback.Hosts {
		a.next++
		return a.block.Address(a.next - 1)
	}
	if len(a.free) == 0 {
		return "", fmt.Errorf("all %d addresses of the node are taken: delete Pods", loopback.Hosts)
	}
	address := a.free[0]
	a.free = a.free[1:]
	return address, nil
}

func (a *addresses) giveBack(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = append(a.free, address)
}
