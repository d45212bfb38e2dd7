package loopback

import "strings"

// Published returns the address 10.x.y.z for 127.x.y.z. EndpointSlices allow no loopback addresses.
func Published(address string) string { return "10." + strings.TrimPrefix(address, "127.") }

// Actual returns the loopback address of a published address.
func Actual(published string) string { return "127." + strings.TrimPrefix(published, "10.") }
