// Command witness is a program that elects a leader in the style of client-go. If the process of the leader is killed, its parent
// releases the lock, so that another replica leads without a wait for the lease.
//
// Start two replicas, then kill the process that leads:
//
//	POD_NAMESPACE=default POD_NAME=a go run ./examples/witness
//	POD_NAMESPACE=default POD_NAME=b go run ./examples/witness
package main
