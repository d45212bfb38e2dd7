// Package apiserver provides an in-memory API server for unit tests: objects with compare-and-swap, watches with history, and clients
// with their own latency and faults.
//
//	s := apiserver.New(&corev1.ConfigMap{…})
//	client, err := kubernetes.NewForConfig(s.Config())
//	s.On(func(r apiserver.Request) apiserver.Fault { return apiserver.Fault{Before: time.Second} })
//	other := s.NewClient("other") // its faults and watches are its own
//
// A Client is a transport, so that clients of client-go send real requests. It also implements the typed interfaces of ConfigMaps and
// Leases, without HTTP. A Server works in a bubble of testing/synctest if it is created in the bubble. It does not block while it holds a
// mutex. The goroutine of a watch ends with the watch.
//
// The server does not default, authorize or convert objects, and validates only Leases. It treats an apply and a strategic merge patch as
// a merge patch.
package apiserver
