// Package inspect tells from lock objects the state of an election: who leads, of which
// revision, why, who could take over, and what would happen if. It is pure: it sends no
// request and reads no clock, so that a command and a page that show elections agree.
//
// It reads the elections of istiod and of client-go as well as ours. One look at a record does
// not tell whether its holder is alive, because its times are of the holder's own clock. Two
// looks do, see Compare.
package inspect
