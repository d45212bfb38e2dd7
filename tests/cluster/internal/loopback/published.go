package loopback

import "net/netip"

// publishedFirst is the first byte of published addresses.
const publishedFirst = 10

// Published returns the address 10.x.y.z for 127.x.y.z. EndpointSlices allow no loopback addresses.
func Published(address string) string { return exchange(address, 127, publishedFirst) }

// Actual returns the loopback address of a published address. It returns other addresses unchanged.
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
