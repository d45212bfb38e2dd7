// Package apiserver provides an in-memory API server for unit tests: objects with compare-and-swap, watches, and faults of single
// requests. It is a transport, so clients are the real ones, and it works in a bubble of testing/synctest.
//
//	s := apiserver.New(&corev1.ConfigMap{…})
//	client, err := kubernetes.NewForConfig(s.Config())
//	s.On(func(r apiserver.Request) apiserver.Fault { return apiserver.Fault{Delay: time.Second} })
//
// It does not validate, default, authorize or convert objects. It treats an apply and a strategic merge patch as a merge patch.
package apiserver
