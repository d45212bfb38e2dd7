package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

const (
	// hosts is the number of addresses of a block.
	hosts = 253
	// The range of the second byte. It avoids addresses that systems use (127.0.0.1, 127.0.0.53, 127.0.1.1).
	firstSecond, seconds = 64, 128
	// reservationPort is open on the last address of a block.
	reservationPort = 61000
	attempts        = 100
)

// Pool allocates the addresses of a reserved block, 127.x.y.1 to 127.x.y.253. It reuses the address that was freed first,
// because other processes may still connect to a recently freed address.
type Pool struct {
	base        [4]byte
	reservation net.Listener

	mu   sync.Mutex
	last int
	free []string
}

// NewPool reserves a free block. The reservation is a listening socket on its last address, which the kernel closes
// when the program ends.
func NewPool() (*Pool, error) {
	var last error
	for range attempts {
		p := &Pool{base: [4]byte{127, byte(firstSecond + rand.IntN(seconds)), byte(rand.IntN(256)), 0}}
		reservation, err := net.Listen("tcp4", netip.AddrPortFrom(p.address(hosts+1), reservationPort).String())
		if err == nil {
			p.reservation = reservation
			return p, nil
		}
		last = err
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("reserve loopback addresses (requires Linux): %w", last)
}

// Take allocates an address.
func (p *Pool) Take() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last < hosts {
		p.last++
		return p.address(p.last).String(), nil
	}
	if len(p.free) == 0 {
		return "", fmt.Errorf("all %d addresses of the block are in use", hosts)
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

func (p *Pool) address(n int) netip.Addr {
	bytes := p.base
	bytes[3] = byte(n)
	return netip.AddrFrom4(bytes)
}

// Release releases the block.
func (p *Pool) Release() error {
	if err := p.reservation.Close(); err != nil {
		return fmt.Errorf("release loopback addresses: %w", err)
	}
	return nil
}
