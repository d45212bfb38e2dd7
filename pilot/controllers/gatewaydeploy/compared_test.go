package gatewaydeploy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

func TestWhatAConfigurationMeans(t *testing.T) {
	got := Config{}.withDefaults()
	if got.Revision != "default" || got.Template != DefaultTemplateName || got.Image != "auto" || got.Logger == nil || !got.IsMine(metav1.ObjectMeta{}) {
		t.Errorf("the defaults are %+v", got)
	}
	set := Config{Revision: "a", Template: "b", Image: "c", IsMine: func(metav1.ObjectMeta) bool { return false }}.withDefaults()
	if set.Revision != "a" || set.Template != "b" || set.Image != "c" || set.IsMine(metav1.ObjectMeta{}) {
		t.Errorf("what was set became %+v", set)
	}
	if err := (Config{Namespace: "system", Template: "t.a", Workers: 0}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{Namespace: "system"}).Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Namespace: "No_Name", Template: "no/template", Workers: -1}.Validate()
	for _, part := range []string{`the system namespace "No_Name"`, `the template's ConfigMap "no/template"`, "-1 workers"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not have %q", err, part)
		}
	}
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(client, Config{Namespace: "No_Name"}); err == nil || !strings.Contains(err.Error(), "gateway deployment controller: the system namespace") {
		t.Errorf("a wrong configuration: %v", err)
	}
}

func TestWhoseAnObjectIs(t *testing.T) {
	gw := play(t).Gateway
	owners := func(of ...string) []metav1.OwnerReference {
		var all []metav1.OwnerReference
		for _, one := range of {
			kind, name, _ := strings.Cut(one, "/")
			all = append(all, metav1.OwnerReference{Kind: kind, Name: name})
		}
		return all
	}
	for name, c := range map[string]struct {
		label  string
		owners []metav1.OwnerReference
		want   bool
	}{
		"its label":                             {label: "web", want: true},
		"another's label":                       {label: "other"},
		"its label, another's reference":        {label: "web", owners: owners("Gateway/other"), want: true},
		"its reference":                         {owners: owners("Gateway/web"), want: true},
		"another's reference":                   {owners: owners("Gateway/other")},
		"that of something else of its name":    {owners: owners("Pod/other", "Gateway/web"), want: true},
		"that of something else, and another's": {owners: owners("Pod/web", "Gateway/other")},
		"neither":                               {want: true},
	} {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.owners}}
		if c.label != "" {
			o.Labels = map[string]string{GatewayLabel: c.label}
		}
		if got := ownedBy(o, gw); got != c.want {
			t.Errorf("%s: it is the Gateway's: %v", name, got)
		}
	}
}

// What is wanted is there, whatever stands beside it: by field and by item, whose order says nothing where they
// are objects.
func TestWhatIsThereOfWhatIsWanted(t *testing.T) {
	type m = map[string]any
	type l = []any
	for name, c := range map[string]struct {
		have, want, form any
		holds            bool
	}{
		"the same text":              {"a", "a", "a", true},
		"another text":               {"a", "b", "b", false},
		"another spelling":           {"100m", "0.1", "100m", true},
		"nothing is wanted":          {"a", nil, nil, true},
		"more fields":                {m{"a": "1", "b": "2"}, m{"a": "1"}, m{"a": "1"}, true},
		"a field less":               {m{"a": "1"}, m{"a": "1", "b": "2"}, m{"a": "1", "b": "2"}, false},
		"no object":                  {"a", m{"a": "1"}, m{"a": "1"}, false},
		"a field that is nothing":    {m{}, m{"a": nil}, m{}, true},
		"no items are wanted":        {l{"a"}, l{}, l{}, true},
		"none are wanted, form none": {l{"a"}, l{}, l{"a"}, true},
		"the same texts":             {l{"a", "b"}, l{"a", "b"}, l{"a", "b"}, true},
		"texts in another order":     {l{"b", "a"}, l{"a", "b"}, l{"a", "b"}, false},
		"more texts":                 {l{"a", "b"}, l{"a"}, l{"a"}, false},
		"a text less":                {l{"a"}, l{"a", "b"}, l{"a", "b"}, false},
		"more items":                 {l{m{"n": "a"}, m{"n": "b"}}, l{m{"n": "b"}}, l{m{"n": "b"}}, true},
		"items in another order":     {l{m{"n": "b"}, m{"n": "a"}}, l{m{"n": "a"}, m{"n": "b"}}, l{m{"n": "a"}, m{"n": "b"}}, true},
		"an item less":               {l{m{"n": "a"}}, l{m{"n": "a"}, m{"n": "b"}}, l{m{"n": "a"}, m{"n": "b"}}, false},
		"an item with another field": {l{m{"n": "a", "v": "1"}}, l{m{"n": "a", "v": "2"}}, l{m{"n": "a", "v": "2"}}, false},
		"a form of another length":   {l{m{"n": "a"}}, l{m{"n": "a"}}, l{}, false},
	} {
		if got := holds(c.have, c.want, c.form); got != c.holds {
			t.Errorf("%s: it is there: %v", name, got)
		}
	}
}

// What was wanted last is told by a digest, which does not depend on itself.
func TestTheDigestOfWhatWasWanted(t *testing.T) {
	digest := func(document map[string]any) string {
		o := unstructured.Unstructured{Object: sealed(document)}
		return o.GetAnnotations()[appliedAnnotation]
	}
	document := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}, "spec": map[string]any{"a": "b"}}
	first := digest(document)
	if again := digest(document); len(first) != 32 || again != first {
		t.Errorf("the digest is %q, then %q", first, again)
	}
	if other := digest(edited(document, "c", "spec", "a")); other == first {
		t.Error("something else is wanted, and the digest is the same")
	}
	if err := seal(map[string]any{"a": func() {}}); err == nil {
		t.Error("what cannot be written has a digest")
	}
}

// Of what others wrote, and of our status, nothing is compared.
func TestWhichFieldsAreOurs(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{
		{Manager: ControllerName, Operation: metav1.ManagedFieldsOperationUpdate},
		{Manager: ControllerName, Operation: metav1.ManagedFieldsOperationApply},
		{Manager: ControllerName, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"},
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate},
	}
	if got := ourFields(entries); !reflect.DeepEqual(got, entries[:2]) {
		t.Errorf("ours are %+v", got)
	}
	for i, want := range []bool{true, false, false, false} {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: entries[i : i+1]}}
		if got := created(o); got != want {
			t.Errorf("%+v: created: %v", entries[i], got)
		}
		applied := asApplied(o)
		if (applied != metav1.Object(o)) != want || want && applied.GetManagedFields()[0].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("%+v as applied: %+v", entries[i], applied.GetManagedFields())
		}
	}
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: entries}}
	if got := asApplied(o).GetManagedFields(); len(got) != 4 || !reflect.DeepEqual(got[1:], entries[1:]) || o.ManagedFields[0].Operation != metav1.ManagedFieldsOperationUpdate {
		t.Errorf("as applied: %+v, and the object itself %+v", got, o.ManagedFields)
	}
}

func TestWhatIsOfAnotherKindIsSaid(t *testing.T) {
	if _, err := known[Service].owned(&corev1.ServiceAccount{}); err == nil || !strings.Contains(err.Error(), "a *v1.ServiceAccount is no *v1.Service") {
		t.Errorf("the fields of a Service that is none: %v", err)
	}
	if _, err := Service.asWanted(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, map[string]any{}); err == nil || !strings.Contains(err.Error(), "Service shop/web") {
		t.Errorf("comparing it: %v", err)
	}
	if _, err := Service.asWanted(&corev1.Service{}, map[string]any{"spec": "none"}); err == nil {
		t.Error("it was compared with a document that is no Service")
	}
	got := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}}}
	if o, err := typedAs[*corev1.Service](Service, got); err != nil || o.Name != "web" {
		t.Errorf("an answer: %+v, %v", o, err)
	}
	if _, err := typedAs[*corev1.Service](Deployment, got); err == nil || !strings.Contains(err.Error(), "the answer is a *v1.Deployment") {
		t.Errorf("an answer of another kind: %v", err)
	}
	got.Object["spec"] = "none"
	if _, err := typedAs[*corev1.Service](Service, got); err == nil || !strings.Contains(err.Error(), "reading the answer") {
		t.Errorf("an answer that is none: %v", err)
	}
}

// Who owns which fields cannot be read: nothing is written, and it is said.
func TestWhatIsOwnedCannotBeRead(t *testing.T) {
	for _, kind := range Kinds {
		p := play(t)
		o := p.put(kind, write{ControllerName, true, sealed(edited(p.plan().document(kind).Object, "b", "metadata", "annotations", "a"))})
		fields := o.GetManagedFields()
		fields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":1}`)
		o.SetManagedFields(fields)
		for _, step := range p.plan().Steps {
			if step.Kind != kind {
				continue
			}
			if step.Action != Leave || step.Problem == nil || step.Problem.Reason != ReasonWriteFailed || !strings.Contains(step.Problem.Message, "reading who owns the fields of "+string(kind)+" shop/web-istio") || strings.Contains(step.Problem.Message, "non-nil") {
				t.Errorf("the %s: %+v, %v", kind, step, step.Problem)
			}
		}
	}
}

// What an overlay may not set, by the path of the field.
func TestWhatIsNotAnOverlaysToChange(t *testing.T) {
	for path, value := range map[string]any{
		"apiVersion": "a/v1", "kind": "Secret", "status": map[string]any{"loadBalancer": map[string]any{}},
		"metadata.name": "a", "metadata.generateName": "a", "metadata.namespace": "a", "metadata.uid": "a",
		"metadata.resourceVersion": "1", "metadata.generation": int64(1), "metadata.selfLink": "a", "metadata.deletionGracePeriodSeconds": int64(1),
		"metadata.creationTimestamp": "2026-01-01T00:00:00Z", "metadata.deletionTimestamp": "2026-01-01T00:00:00Z",
		"metadata.ownerReferences": []any{}, "metadata.finalizers": []any{"example.com/a"}, "metadata.managedFields": []any{map[string]any{"manager": "a"}},
	} {
		text, err := toJSON(edited(map[string]any{}, value, strings.Split(path, ".")...))
		if err != nil {
			t.Fatal(err)
		}
		if path == "metadata.ownerReferences" {
			text = `{"metadata":{"ownerReferences":null}}`
		}
		p := play(t)
		p.Defaults = &corev1.ConfigMap{Data: map[string]string{"service": text}}
		plan := p.plan()
		if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, "changes "+path+",") {
			t.Errorf("%s: %+v", text, plan.Problem)
		}
	}
}

// An apply that begins with a claim goes no further when the object cannot be read, is not the one that was compared,
// or keeps its fields.
func TestAnAnswerThatFails(t *testing.T) {
	type answer struct {
		code int
		body string
	}
	object := func(version, fields string) string {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop","resourceVersion":"` + version + `"` + fields + `}}`
	}
	owned := `,"managedFields":[{"manager":"` + ControllerName + `","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:type":{}}}}]`
	failure := `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"InternalError","message":"out of order","code":500}`
	for name, c := range map[string]struct {
		get, patch answer
		says       string
		asked      string
	}{
		"it cannot be read":              {get: answer{500, failure}, says: "out of order", asked: "GET"},
		"it is another version":          {get: answer{200, object("43", owned)}, says: "it is at 43, and was read at 42", asked: "GET"},
		"its fields stay the create's":   {get: answer{200, object("42", owned)}, patch: answer{500, failure}, says: "out of order", asked: "GET PATCH"},
		"an apply has its fields by now": {get: answer{200, object("42", "")}, patch: answer{200, object("44", "")}, asked: "GET APPLY 42"},
		"its fields become an apply's":   {get: answer{200, object("42", owned)}, patch: answer{200, object("44", "")}, asked: "GET PATCH APPLY 44"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				a, verb := c.get, req.Method
				if req.Method == http.MethodPatch {
					a = c.patch
				}
				if req.Header.Get("Content-Type") == string(types.ApplyPatchType) {
					var sent unstructured.Unstructured
					if err := json.NewDecoder(req.Body).Decode(&sent.Object); err != nil {
						t.Error(err)
					}
					verb = "APPLY " + sent.GetResourceVersion()
					if req.URL.Query().Get("force") != "true" || req.URL.Query().Get("fieldManager") != ControllerName {
						t.Errorf("the apply is %s", req.URL)
					}
				}
				asked = append(asked, verb)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(a.code)
				_, _ = io.WriteString(w, a.body)
			}))
			defer server.Close()
			client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: server.URL}, server.Client())
			if err != nil {
				t.Fatal(err)
			}
			document := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service"}}
			document.SetResourceVersion("42")
			got, err := apply(t.Context(), client.Resource(Service.Resource()).Namespace("shop"), Step{Kind: Service, Namespace: "shop", Name: "web", Document: document.Object, Claim: true})
			if c.says == "" && (err != nil || got.GetResourceVersion() != "44") || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("the answer is %+v, %v, want %q", got, err, c.says)
			}
			if all := strings.Join(asked, " "); all != c.asked {
				t.Errorf("asked: %s, want %s", all, c.asked)
			}
		})
	}
}
