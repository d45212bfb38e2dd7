package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
)

const (
	// Hosts is the number of addresses in a block.
	Hosts = 253
	// The range of the second byte. It avoids addresses that systems use (127.0.0.1, 127.0.0.53, 127.0.1.1).
	firstSecond, seconds = 64, 128
	// reservationPort is open on the last address of a block.
	reservationPort = 61000
	attempts        = 100
)

// Block is a reserved range of loopback addresses, 127.x.y.1 to 127.x.y.253.
type Block struct {
	base        [4]byte
	reservation net.Listener
}

// Reserve reserves a free block. The reservation is a listening socket on its last address, which the kernel closes
// when the program ends.
func Reserve() (*Block, error) {
	var last error
	for range attempts {
		b := &Block{base: [4]byte{127, byte(firstSecond + rand.IntN(seconds)), byte(rand.IntN(256)), 0}}
		reservation, err := net.Listen("tcp4", netip.AddrPortFrom(b.address(Hosts+1), reservationPort).String())
		if err == nil {
			b.reservation = reservation
			return b, nil
		}
		last = err
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("reserve loopback addresses (requires Linux): %w", last)
}

// Address returns the n-th address of the block, from 1 to Hosts.
func (b *Block) Address(n int) (string, error) {
	if n < 1 || n > Hosts {
		return "", fmt.Errorf("loopback address %d: a block has 1 to %d", n, Hosts)
	}
	return b.address(n).String(), nil
}

func (b *Block) address(n int) netip.Addr {
	bytes := b.base
	bytes[3] = byte(n)
	return netip.AddrFrom4(bytes)
}

// Release releases the block.
func (b *Block) Release() error {
	if err := b.reservation.Close(); err != nil {
		return fmt.Errorf("release loopback addresses: %w", err)
	}
	return nil
}
