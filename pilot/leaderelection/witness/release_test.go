package witness

import (
	"errors"
	"testing"

	"k8s.io/client-go/rest"
)

// A kubeconfig can be incomplete while another process replaces it.
func TestShared_ConnectFails(t *testing.T) {
	var fails error
	get := Options{Connect: func(string) (*rest.Config, error) { return &rest.Config{}, fails }}.shared("")
	first, err := get(clients{})
	if err != nil {
		t.Fatal(err)
	}
	fails = errors.New("incomplete kubeconfig")
	if _, err := get(first); !errors.Is(err, fails) {
		t.Errorf("error %v, want %v", err, fails)
	}
	fails = nil
	if second, err := get(first); err != nil || second.core == nil || second == first {
		t.Errorf("after the error: %v, %v, want other clients", second, err)
	}
}
