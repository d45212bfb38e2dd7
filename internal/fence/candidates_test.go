package fence

import (
	"strings"
	"testing"
)

func TestValidate_Coordinated(t *testing.T) {
	d := Declaration{Election: "x", Namespace: "n", Lock: ConfigMap, Coordinated: true, ServiceAccounts: []string{"n/a"}}
	if err := d.Validate(); err == nil || !strings.Contains(err.Error(), "give lease") {
		t.Errorf("a ConfigMap: %v", err)
	}
	d.Lock = Lease
	with, err := Render("s", d)
	if err != nil {
		t.Fatal(err)
	}
	d.Coordinated = false
	without, err := Render("s", d)
	if err != nil {
		t.Fatal(err)
	}
	if len(with.All()) != len(without.All())+1 {
		t.Errorf("%d policies, and %d without LeaseCandidates to guard", len(with.All()), len(without.All()))
	}
	s := single{Declaration: Declaration{Lock: Lease, Coordinated: true}, lock: "x"}
	if got, want := s.isPod("h", "p"), "(h == p || h == p + '.x')"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
