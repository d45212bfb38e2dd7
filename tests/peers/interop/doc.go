// Package interop has candidates of incumbent, of istiod's package and of client-go's
// elect together, on a real API server, through every kind of change of hands and in both roles.
// The peers are the real packages, not models of them. Run it with `make interop`.
//
// What has to hold in each: two of ours never work at once; one of ours never starts before
// a peer has been told to stop or the lease that it wrote is over; each reads every
// record that another wrote, field by field; and what others put on the lock object
// survives all of them.
package interop
