// Package loopback hands out blocks of loopback addresses, so that clusters, nodes and
// pods of several programs at once do not meet: each block belongs to one program, and
// every port of its addresses is free to use.
//
// Linux answers on all of 127.0.0.0/8 without being told; other systems on 127.0.0.1
// only, and there Reserve fails.
package loopback
