// Package inspect turns lock objects into what people want to know of an election: who leads,
// of which revision, why, who could take over, and what would happen if. It is pure: it asks
// nobody and reads no clock, so that whoever shows elections, a command or a page, says the same.
//
// It reads the elections of istiod and of client-go as well as ours. Of whether a holder is
// alive one look at a record tells nothing: its times are of the holder's own clock. Two looks
// do, see Compare.
package inspect
