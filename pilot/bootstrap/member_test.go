package bootstrap

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

// memberHasItsEffect: a server says what it could lead, as soon as it could, and nothing any more after its end; and one
// that is to say nothing has no rights to and does not.
func memberHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.Revision = "a-revision"
	pod, err := e.admin.Kube().CoreV1().Pods(e.home).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config.PodUID = string(pod.UID)
	list := func() []members.Member {
		all, err := members.List(t.Context(), e.admin.Kube(), e.home)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	c := newController()
	c.cold = make(chan struct{})
	r := start(t, config, c.rows())
	want := members.Election{Name: electionID, Candidate: true, Fit: true}
	await(t, "it is published while it warms up", func() bool {
		all := list()
		return len(all) == 1 && len(all[0].Elections) == 1 && all[0].Elections[0] == want
	})
	if m := list()[0]; m.Identity != "a" || m.Key() != "a-revision" || m.Version != ReadBuild().Version || m.PodUID != config.PodUID || m.Late(time.Now(), time.Minute) {
		t.Errorf("it is published as %+v", m)
	}
	close(c.cold)
	want.Warm = true
	await(t, "it is published as warm", func() bool { return list()[0].Elections[0] == want })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if all := list(); len(all) > 0 {
		t.Errorf("after its end there is %+v", all)
	}
	config = e.config(t, "b")
	config.DisableMember = true
	var sent requests
	sent.through(config.RESTConfig)
	b := start(t, config, newController().rows())
	b.leads(t)
	if err := b.end(); err != nil {
		t.Error(err)
	}
	if asked := sent.that(func(r *http.Request) bool { return strings.Contains(r.URL.Path, members.NamePrefix) }); len(asked) > 0 {
		t.Errorf("one that is to say nothing sends %d requests", len(asked))
	}
	rights := func(c Config) int { return len(Rights(c).Home) }
	if with := rights(Config{}); rights(Config{DisableMember: true}) != with-1 || rights(Config{DisableElections: true}) != with-1 {
		t.Error("one that is to say nothing has the rights for it")
	}
}
