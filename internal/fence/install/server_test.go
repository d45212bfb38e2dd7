package install

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/atomic"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
)

// judging is an API server for a verifier, with the given objects and responses to writes. A write that would change an
// object fails the test.
type judging struct {
	*httptest.Server
	t *testing.T
	// objects are the answers by the path of the request; lists are those for collections.
	objects, lists map[string]any
	// answers returns the result of a write: nil if admitted.
	answers func(attempt) error
	// warns is the warning of a response.
	warns string

	// open counts the connections.
	open atomic.Int32

	mu       sync.Mutex
	attempts []attempt
}

// attempt is a write that was tried.
type attempt struct{ verb, path, user, pod string }

func (a attempt) String() string {
	return fmt.Sprintf("%s %s by %s, pod %q", a.verb, a.path, a.user, a.pod)
}

func newJudging(t *testing.T) *judging {
	j := &judging{t: t, objects: map[string]any{}, lists: map[string]any{}, answers: func(attempt) error { return nil }}
	j.Server = httptest.NewUnstartedServer(j)
	j.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			j.open.Inc()
		case http.StateClosed, http.StateHijacked:
			j.open.Dec()
		case http.StateActive, http.StateIdle:
		}
	}
	j.Start()
	t.Cleanup(j.Close)
	j.serves("v1", "/api/v1", "configmaps", "secrets", "services", "pods", "serviceaccounts", "-nodes")
	j.objects["/api"] = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	apps := metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"}
	j.objects["/apis"] = metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{apps}, PreferredVersion: apps}},
	}
	j.serves("apps/v1", "/apis/apps/v1", "deployments")
	return j
}

// serves makes kinds available; "-" marks a cluster-scoped kind.
func (j *judging) serves(version, path string, resources ...string) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
	for _, r := range resources {
		name, nowhere := strings.CutPrefix(r, "-")
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, Kind: name, Namespaced: !nowhere, Verbs: metav1.Verbs{"get", "list", "create", "update", "delete"},
		})
	}
	j.objects[path] = list
}

// has puts an object there; it is found by its own path and in the list of its kind.
func (j *judging) has(version, kind, prefix, namespace, resource, name string, content map[string]any) {
	object := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{
		"name": name, "namespace": namespace, "uid": "1", "resourceVersion": "7", "labels": map[string]any{"app": name},
		"managedFields": []any{map[string]any{"manager": "m"}}, "ownerReferences": []any{map[string]any{"uid": "2", "name": "o", "kind": "k", "apiVersion": "v1"}},
	}}
	maps.Copy(object, content)
	where := prefix
	if namespace != "" {
		where += "/namespaces/" + namespace
	}
	j.objects[where+"/"+resource+"/"+name] = object
	for _, sub := range []string{"scale", "status"} {
		j.objects[where+"/"+resource+"/"+name+"/"+sub] = object
	}
	for _, path := range []string{where + "/" + resource, prefix + "/" + resource} {
		for _, selector := range []string{"", "metadata.name=" + name} {
			j.lists[path+"?"+selector] = map[string]any{"apiVersion": version, "kind": kind + "List", "metadata": map[string]any{}, "items": []any{object}}
		}
	}
}

func (j *judging) installed(set fence.Set) {
	for _, p := range set.All() {
		j.objects["/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"+p.Name()] = p.Policy
		j.objects["/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"+p.Name()] = p.Binding
	}
}

func (j *judging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Method != http.MethodGet {
		j.write(w, r)
		return
	}
	query := r.URL.Query()
	if object, there := j.objects[r.URL.Path]; there {
		answer(w, object)
		return
	}
	if query.Has("limit") {
		list, there := j.lists[r.URL.Path+"?"+query.Get("fieldSelector")]
		if err, fails := list.(error); fails {
			refuse(w, err)
			return
		}
		if there {
			answer(w, list)
			return
		}
		answer(w, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{}})
		return
	}
	refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: r.URL.Path}, "it"))
}

func (j *judging) write(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a := attempt{verb: map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method], path: r.URL.Path}
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
	j.attempts = append(j.attempts, a)
	if j.warns != "" {
		w.Header().Add("Warning", `299 - "`+j.warns+`"`)
	}
	if err := j.answers(a); err != nil {
		refuse(w, err)
		return
	}
	if object, there := j.objects[r.URL.Path]; there { // a patch without content
		answer(w, object)
		return
	}
	answer(w, json.RawMessage(body))
}

// bodies must be in the bodies of some writes, by the ends of their paths.
var bodies = map[string][]string{
	"/eviction": {`"kind":"Eviction"`, `"apiVersion":"policy/v1"`, `"dryRun":["All"]`, `"name":"p"`, `"namespace":"apps"`},
	"/binding":  {`"kind":"Binding"`, `"apiVersion":"v1"`, `"kind":"Node"`, `"name":"p"`, `"namespace":"apps"`},
	"/token":    {`"kind":"TokenRequest"`, `"apiVersion":"authentication.k8s.io/v1"`, `"name":"pilot"`},
	"/exec":     {`"kind":"Pod"`, `"apiVersion":"v1"`},
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(object); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func refuse(w http.ResponseWriter, err error) {
	status := err.(apierrors.APIStatus).Status() //nolint:errorlint // the tests' own
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
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
