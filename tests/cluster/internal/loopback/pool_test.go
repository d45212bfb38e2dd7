package loopback

import "testing"

func TestAPoolGivesWhatWasGivenBackLongestAgo(t *testing.T) {
	p, err := NewPool()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}()
	taken := map[string]bool{}
	var all []string
	take := func() string {
		t.Helper()
		address, err := p.Take()
		if err != nil {
			t.Fatal(err)
		}
		if taken[address] {
			t.Fatalf("%s is taken twice", address)
		}
		taken[address] = true
		all = append(all, address)
		return address
	}
	giveBack := func(address string) {
		delete(taken, address)
		p.GiveBack(address)
	}
	first := take()
	giveBack(first)
	for range Hosts - 1 {
		if take() == first {
			t.Fatal("an address is used again while others were never used")
		}
	}
	giveBack(all[5])
	if got := take(); got != first {
		t.Errorf("the address is %s, want %s, which was given back first", got, first)
	}
	if got := take(); got != all[5] {
		t.Errorf("the address is %s, want %s", got, all[5])
	}
	if address, err := p.Take(); err == nil {
		t.Errorf("there is one more: %s", address)
	}
}

func TestPublishedAddresses(t *testing.T) {
	for _, c := range [][2]string{{"127.64.2.3", "10.64.2.3"}, {"192.0.2.1", "192.0.2.1"}, {"::1", "::1"}, {"none", "none"}} {
		if got := Published(c[0]); got != c[1] {
			t.Errorf("%s is published as %s, want %s", c[0], got, c[1])
		}
		if got := Actual(c[1]); got != c[0] {
			t.Errorf("%s is actually %s, want %s", c[1], got, c[0])
		}
	}
}
