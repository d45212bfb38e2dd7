// Package inspect derives the state of an election from its lock objects: the leader, its revision and the reason, the candidates,
// and predictions. It sends no request and reads no clock, so the command-line tool and the page agree.
//
// It also reads the elections of istiod and client-go. One read of a record does not show whether the holder is alive, because the
// times in it are from the holder's clock. The API server's time of the last write (Lock.At, managedFields) does. Compare uses two reads.
package inspect
