package loopback

import "net/netip"

// publishedFirst is the first byte of published addresses, of a network that is nobody's in particular.
const publishedFirst = 10

// Published is the address under which a loopback address stands in objects: 10.x.y.z for 127.x.y.z. An API server
// takes no loopback address as an endpoint's.
func Published(address string) string { return exchange(address, 127, publishedFirst) }

// Actual is the loopback address that a published one stands for. Any other is itself.
func Actual(address string) string { return exchange(address, publishedFirst, 127) }

func exchange(address string, from, to byte) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil || !parsed.Is4() {
		return address
	}
	bytes := parsed.As4()
	if bytes[0] != from {
		return address
	}
	bytes[0] = to
	return netip.AddrFrom4(bytes).String()
}
