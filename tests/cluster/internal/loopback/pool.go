package loopback

import (
	"fmt"
	"sync"
)

// Pool hands out the addresses of a block, those never used first, and then the one that was given back
// longest ago: who gets one does not inherit the connections that others keep trying to its predecessor.
type Pool struct {
	block *Block

	mu   sync.Mutex
	next int
	free []string
}

// NewPool reserves a block.
func NewPool() (*Pool, error) {
	block, err := Reserve()
	if err != nil {
		return nil, err
	}
	return &Pool{block: block, next: 1}, nil
}

// Take hands out an address.
func (p *Pool) Take() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next <= Hosts {
		p.next++
		return p.block.Address(p.next - 1)
	}
	if len(p.free) == 0 {
		return "", fmt.Errorf("all %d addresses of the block are taken", Hosts)
	}
	address := p.free[0]
	p.free = p.free[1:]
	return address, nil
}

// GiveBack takes one back.
func (p *Pool) GiveBack(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, address)
}

// Release gives the block back.
func (p *Pool) Release() error { return p.block.Release() }
