package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/atomic"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

// judging is an API server for a verifier, with the given objects and responses to writes. A write that would change an object fails the
// test.
type judging struct {
	*apiserver.Server
	t   *testing.T
	URL string
	// pages are the answers to reads of these paths: an object, or an error.
	pages map[string]any
	// answers returns the result of a write: nil if admitted.
	answers func(attempt) error
	// warns is the warning of a response.
	warns string
	open  *atomic.Int32 // connections

	mu       sync.Mutex
	attempts []attempt
}

// attempt is a write that was tried.
type attempt struct{ verb, path, user, pod string }

func (a attempt) String() string {
	return fmt.Sprintf("%s %s by %s, pod %q", a.verb, a.path, a.user, a.pod)
}

func newJudging(t *testing.T) *judging {
	j := &judging{Server: apiserver.New(), t: t, answers: func(attempt) error { return nil }}
	j.On(j.judge)
	j.URL, j.open = j.Listen(t)
	j.pages = discovery(map[string][]string{
		"v1": {"configmaps", "secrets", "services", "pods", "serviceaccounts", "-nodes"}, "apps/v1": {"deployments"},
	})
	return j
}

// discovery returns the discovery documents for the resources of each API version by their paths. "-" marks a cluster-scoped resource.
func discovery(served map[string][]string) map[string]any {
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	pages := map[string]any{"/api": metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}}
	for version, resources := range served {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
		for _, r := range resources {
			name, nowhere := strings.CutPrefix(r, "-")
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, Kind: name, Namespaced: !nowhere, Verbs: metav1.Verbs{"get", "list", "create", "update", "delete"},
			})
		}
		group, number, named := strings.Cut(version, "/")
		if !named {
			pages["/api/"+version] = list
			continue
		}
		pages["/apis/"+version] = list
		of := metav1.GroupVersionForDiscovery{GroupVersion: version, Version: number}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{of}, PreferredVersion: of})
	}
	pages["/apis"] = groups
	return pages
}

// has stores an object.
func (j *judging) has(version, kind, namespace, name string, content map[string]any) {
	object := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{
		"name": name, "namespace": namespace, "uid": "1", "labels": map[string]any{"app": name},
		"managedFields": []any{map[string]any{"manager": "m"}}, "ownerReferences": []any{map[string]any{"uid": "2", "name": "o", "kind": "k", "apiVersion": "v1"}},
	}}
	maps.Copy(object, content)
	j.Put(&unstructured.Unstructured{Object: object})
}

func (j *judging) installed(set fence.Set) {
	for _, p := range set.All() {
		j.Put(p.Policy)
		j.Put(p.Binding)
	}
}

func (j *judging) judge(r apiserver.Request) apiserver.Fault {
	if r.Verb != "get" && r.Verb != "list" {
		return j.write(r)
	}
	page := j.pages[r.URL.Path]
	if r.Subresource != "" && r.Subresource != "scale" {
		page = apierrors.NewNotFound(schema.GroupResource{Resource: r.Resource}, r.Name)
	}
	if err, fails := page.(error); fails {
		return apiserver.Fault{Err: err}
	}
	return apiserver.Fault{Object: page}
}

func (j *judging) write(r apiserver.Request) apiserver.Fault {
	body, err := json.Marshal(r.Body)
	if err != nil {
		j.t.Error(err)
	}
	a := attempt{verb: r.Verb, path: r.URL.Path}
	a.user, a.pod = r.Header.Get("Impersonate-User"), r.Header.Get("Impersonate-Extra-"+strings.ReplaceAll(fence.PodClaim, "/", "%2f"))
	namespace, name, _ := strings.Cut(strings.TrimPrefix(a.user, "system:serviceaccount:"), ":")
	if groups := r.Header.Values("Impersonate-Group"); !slices.Equal(groups, []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}) || name == "" {
		j.t.Errorf("%v in the groups %v", a, groups)
	}
	// Each write must be a dry run, except a connection without an upgrade. An update must not name a version, which a
	// concurrent write can change.
	dry := slices.Contains(r.URL.Query()["dryRun"], "All") || strings.Contains(string(body), `"dryRun":["All"]`)
	if !dry && !strings.HasSuffix(a.path, "/exec") || strings.Contains(string(body), "resourceVersion") ||
		a.verb == "create" && (strings.Contains(string(body), `"uid"`) || strings.Contains(string(body), "managedFields")) {
		j.t.Errorf("%v: %s?%s\n%s", a, r.URL.Path, r.URL.RawQuery, body)
	}
	for ending, words := range bodies {
		for _, word := range words {
			if strings.HasSuffix(a.path, ending) && !strings.Contains(string(body), word) {
				j.t.Errorf("%v: %s is missing in %s", a, word, body)
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attempts = append(j.attempts, a)
	answer := apiserver.Fault{Err: j.answers(a)}
	if a.verb != "patch" { // whose body is not an object
		answer.Object = r.Body
	}
	if j.warns != "" {
		answer.Header = http.Header{"Warning": {`299 - "` + j.warns + `"`}}
	}
	return answer
}

// bodies must be in the bodies of some writes, by the ends of their paths.
var bodies = map[string][]string{
	"/eviction": {`"kind":"Eviction"`, `"apiVersion":"policy/v1"`, `"dryRun":["All"]`, `"name":"p"`, `"namespace":"apps"`},
	"/binding":  {`"kind":"Binding"`, `"apiVersion":"v1"`, `"kind":"Node"`, `"name":"p"`, `"namespace":"apps"`},
	"/token":    {`"kind":"TokenRequest"`, `"apiVersion":"authentication.k8s.io/v1"`, `"name":"pilot"`},
	"/exec":     {`"kind":"Pod"`, `"apiVersion":"v1"`},
}

// byPolicy is a rejection by a policy, byRBAC an earlier rejection.
func byPolicy(a attempt) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y",
		fmt.Errorf("ValidatingAdmissionPolicy '%ss.work-1' with binding 'b' denied request: pod %s is not the leader", fence.PolicyPrefix, a.pod))
}

func byRBAC(attempt) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", fmt.Errorf("it may not"))
}

func (j *judging) config() *rest.Config { return &rest.Config{Host: j.URL} }
