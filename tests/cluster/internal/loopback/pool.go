package loopback

import (
	"fmt"
	"sync"
)

// Pool allocates the addresses of a block. It reuses the address that was freed first, because other processes may
// still connect to a recently freed address.
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

// Take allocates an address.
func (p *Pool) Take() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next <= Hosts {
		p.next++
		return p.block.Address(p.next - 1)
	}
	if len(p.free) == 0 {
		return "", fmt.Errorf("all %d addresses of the block are in use", Hosts)
	}
	address := p.free[0]
	p.free = p.free[1:]
	return address, nil
}

// GiveBack frees an address.
func (p *Pool) GiveBack(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, address)
}

// Release releases the block.
func (p *Pool) Release() error { return p.block.Release() }
