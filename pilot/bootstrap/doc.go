// Package bootstrap puts a control-plane server together, starts it and stops it in
// order. It is the one package that knows everyone.
//
//	start ▶  http · events · default revision · other locks · fence · elections
//	stop  ◀  http · events · default revision · other locks · fence · elections
//
// Each part is up before the next one starts, and has ended before the one before it
// is told to stop, or has outstayed its bound, which is reported. So run functions have
// drained and locks are released while health and metrics still answer. When a part
// cannot start, those before it are stopped again.
//
// No part needs the API server to be there: while it is away, the server runs, says so
// once, and waits.
package bootstrap
