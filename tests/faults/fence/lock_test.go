package fence

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// guardedLock is a stage whose lock is guarded, with a as the holder of term 3.
func guardedLock(t *testing.T, kind record.Kind) (s *stage, a, b kubernetes.Interface) {
	s = newStage(t, kind)
	s.others = []string{s.namespace + "/istiod"}
	a, b = s.guarded()
	return s, a, b
}

func request(identity string) map[string]string {
	raw, _ := json.Marshal(map[string]any{"identity": identity, "holder": "a", "transitions": 3, "seconds": 30, "accepted": true})
	return map[string]string{record.HandoverRequestAnnotation: string(raw)}
}

func TestLock_Changes(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, a, b := guardedLock(t, kind)
		coordinator, other := s.podOf("co", "coordinator").Kube(), s.podOf("o", "other").Kube()
		istiod := s.podOf("i", "istiod").Kube()
		unbound := s.unbound(account)
		elsewhere := s.podElsewhere("a")
		held := content{holder: "a", transitions: 3}
		later := content{holder: "a", transitions: 3, renewed: epoch.Add(second)}
		for _, c := range []struct {
			what   string
			before content
			as     kubernetes.Interface
			after  content
			passes bool
		}{
			{"a follower empties it", held, b, content{transitions: 3}, false},
			{"a follower renews it for the holder", held, b, later, false},
			{"the holder renews and lowers the transitions", held, a, content{holder: "a", transitions: 2, renewed: epoch.Add(second)}, false},
			{"the holder renews and names another", held, a, content{holder: "b", transitions: 3, renewed: epoch.Add(second)}, false},
			{"a pod of the holder's name in another namespace renews it", held, elsewhere, later, false},
			{"an unbound token renews it", held, unbound, later, false},
			{"a follower gives it to a third who has asked", content{holder: "a", transitions: 3, notes: request("c")}, b, content{holder: "c", transitions: 4}, false},
			{"a follower takes it without a new term", held, b, content{holder: "b", transitions: 3}, false},
			{"a follower lowers the transitions", held, b, content{holder: "b", transitions: 2}, false},
			{"the holder lowers them", held, a, content{holder: "a", transitions: 2}, false},
			{"a follower takes it with a count far ahead", held, b, content{holder: "b", transitions: 2147483646}, false},
			{"a follower acquires it and adds two transitions", held, b, content{holder: "b", transitions: 5}, false},
			{"the holder counts on without a new term to its release", held, a, content{transitions: 4}, false},
			{"the holder counts far ahead", held, a, content{holder: "a", transitions: 1000}, false},
			{"a coordinator counts far ahead", held, coordinator, content{holder: "b", transitions: 1000}, false},
			{"a follower takes one at the end of its count, from the beginning", content{holder: "a", transitions: 2147483646}, b, content{holder: "b"}, false},
			{"an unbound token releases it", held, unbound, content{transitions: 3}, false},
			{"a pod of the holder's name in another namespace releases it", held, elsewhere, content{transitions: 3}, false},
			{"an unbound token takes it", held, unbound, content{holder: "a", transitions: 4}, false},
			{"another account takes it", held, other, content{holder: "o", transitions: 4}, false},
			{"the holder hands it to a candidate without a request", held, a, content{holder: "b", transitions: 4}, false},
			{"the holder gives it to another than has asked", content{holder: "a", transitions: 3, notes: request("c")}, a, content{holder: "b", transitions: 4}, false},
			{"a coordinator empties it", held, coordinator, content{transitions: 3}, false},

			{"the holder renews", held, a, later, true},
			{"the holder releases, as istiod does", held, a, content{transitions: 3}, true},
			{"a challenger asks", held, b, content{holder: "a", transitions: 3, notes: request("b")}, true},
			{"anyone labels or annotates", held, other, content{holder: "a", transitions: 3, notes: map[string]string{"x": "y"}}, true},
			{"a hold is noted", held, b, content{holder: "a", transitions: 3, notes: map[string]string{record.HoldAnnotation: "{}"}}, true},
			{"the holder hands over to who has asked", content{holder: "a", transitions: 3, notes: request("b")}, a,
				content{holder: "b", transitions: 4, notes: map[string]string{record.NominatedAnnotation: "b"}}, true},
			{"the nominee begins its term", content{holder: "b", transitions: 4, notes: map[string]string{record.NominatedAnnotation: "b"}}, b,
				content{holder: "b", transitions: 4, renewed: epoch.Add(second)}, true},
			{"a candidate acquires a lock and reaches the maximum", content{holder: "a", transitions: 2147483645}, b, content{holder: "b", transitions: 2147483646}, true},
			{"a candidate takes one at the end of its count, which stays", content{holder: "a", transitions: 2147483646}, b, content{holder: "b", transitions: 2147483646}, true},
			{"a candidate takes one at the very end, which stays", content{holder: "a", transitions: 2147483647}, b, content{holder: "b", transitions: 2147483647}, true},
			{"a candidate acquires a lock at the maximum and resets it", content{holder: "a", transitions: 2147483647}, b, content{holder: "b", transitions: 4}, true},
			{"a coordinator nominates", held, coordinator, content{holder: "b", transitions: 4}, true},
			{"a pod of a further declared account takes an expired one", held, istiod, content{holder: "i", transitions: 4}, true},
			{"a candidate takes an expired one", held, b, content{holder: "b", transitions: 4}, true},
			{"a candidate takes a free one", content{transitions: 3}, b, content{holder: "b", transitions: 4}, true},
			{"a candidate reclaims its own", content{holder: "b", transitions: 3}, b, content{holder: "b", transitions: 4}, true},
			{"an operator empties it", held, s.admin, content{transitions: 3}, true},
		} {
			s.put(c.before)
			err := s.update(c.as, c.after)
			if c.passes {
				s.allowed(c.what, err)
			} else {
				s.refused(c.what, err, election)
			}
		}
	})
}

func TestLock_CreateAndDelete(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, a, b := guardedLock(t, kind)
		if kind == record.ConfigMap {
			s.refused("a follower makes it immutable", s.patch(b, `{"data":{"x":"y"},"immutable":true}`), "immutable")
		}
		s.refused("a follower deletes it", s.delete(b), "only its holder or an operator may delete it")
		s.refused("a follower deletes all of its kind", s.request(b, http.MethodDelete).Do(t.Context()).Error())
		s.allowed("a follower deletes a collection without locks", s.request(b, http.MethodDelete).Param("labelSelector", "not=locks").Do(t.Context()).Error())
		s.allowed("an operator deletes it", s.delete(s.admin))
		s.refused("making it for another", s.createDry(b, content{holder: "a"}))
		s.refused("making it with an unbound token", s.createDry(s.unbound(account), content{holder: "b"}))
		s.allowed("creating it without a holder", s.createDry(b, content{}))
		s.allowed("making it for oneself", s.createDry(a, content{holder: "a"}))
		other := s.podOf("o", "other").Kube()
		s.refused("making it at the maximum of transitions", s.createDry(other, content{transitions: 2147483647}), "only the holder may release")
		s.allowed("another account creates it", s.createDry(other, content{}))
	})
}

func TestLock_AmbiguousRecords(t *testing.T) {
	t.Parallel()
	s, a, b := guardedLock(t, record.ConfigMap)
	write := func(as kubernetes.Interface, raw string) error {
		cm := s.object(content{})
		cm.SetAnnotations(map[string]string{locks.LeaderElectionRecordAnnotationKey: raw})
		return s.request(as, http.MethodPut).Name(election).Body(cm).Do(t.Context()).Error()
	}
	times := `"leaseDurationSeconds":30,"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:05Z","leaderTransitions":4`
	for what, raw := range map[string]string{
		"two holders":                `{"holderIdentity":"b",` + times + `,"holderIdentity":"c"}`,
		"a holder in capitals":       `{"holderIdentity":"b",` + times + `,"HOLDERIDENTITY":"c"}`,
		"no record":                  `x`,
		"a holder that is no string": `{"holderIdentity":["b"],` + times + `}`,
		"an escaped holder":          `{"holderIdentity":"\u0062",` + times + `}`,
		"space":                      `{ "holderIdentity":"b",` + times + `}`,
		"a raw newline":              "{\"holderIdentity\":\"b\",\"holderKey\":\"x\ny\"," + times + "}",
		"a word as time":             strings.Replace(`{"holderIdentity":"b",`+times+`}`, "2026-01-02T03:04:05Z", "tomorrow", 1),
		"a day that is not":          strings.Replace(`{"holderIdentity":"b",`+times+`}`, "2026-01-02", "2026-02-30", 1),
		"a time without a zone":      strings.Replace(`{"holderIdentity":"b",`+times+`}`, "05Z", "05", 1),
		"leading zeros":              strings.Replace(`{"holderIdentity":"b",`+times+`}`, `"leaderTransitions":4`, `"leaderTransitions":004`, 1),
		"a lease of ten digits":      strings.Replace(`{"holderIdentity":"b",`+times+`}`, `:30,`, `:9999999999,`, 1),
		"a lease that begins with 0": strings.Replace(`{"holderIdentity":"b",`+times+`}`, `:30,`, `:030,`, 1),
		"a count of ten digits":      strings.Replace(`{"holderIdentity":"b",`+times+`}`, `"leaderTransitions":4`, `"leaderTransitions":9999999999`, 1),
	} {
		s.put(content{holder: "a", transitions: 3})
		s.refused(what+" by a follower", write(b, raw))
		s.refused(what+" by the holder", write(a, raw))
	}
	t.Log("an operator may ruin it, and any candidate replaces what cannot be read")
	s.allowed("an operator", write(s.admin, "this is no record"))
	eventually(t, "nobody may write", func() bool { return fence.IsRefusal(s.write(a)) })
	s.allowed("replacing it", s.update(b, content{holder: "b", transitions: 4}))
	s.inEffect(b, a)
	t.Log("transitions above the maximum of a Lease stay, and only an operator may write them")
	s.put(content{holder: "a", transitions: 9999999999})
	s.allowed("taking it", s.update(b, content{holder: "b", transitions: 9999999999}))
	s.allowed("renewing it", s.update(b, content{holder: "b", transitions: 9999999999, renewed: epoch.Add(second)}))
	s.refused("counting it on", s.update(b, content{holder: "b", transitions: 10000000000}))
	t.Log("as istiod and client-go write it")
	s.put(content{transitions: 5})
	s.allowed("a record without a key", write(b, `{"holderIdentity":"b","leaseDurationSeconds":30,"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:05Z","leaderTransitions":6,"strategy":"","preferredHolder":""}`))
}

func TestLock_OwnersAndFinalizers(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, a, b := guardedLock(t, kind)
		owned := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"1d4b1f25-0000-0000-0000-000000000000"}]}}`
		held := `{"metadata":{"finalizers":["example.com/held"]}}`
		for who, as := range map[string]kubernetes.Interface{"the holder": a, "a follower": b, "another account": s.podOf("o", "other").Kube()} {
			s.refused("an ownerReference by "+who, s.patch(as, owned), "ownerReferences and finalizers")
			s.refused("a finalizer by "+who, s.patch(as, held), "ownerReferences and finalizers")
		}
		s.allowed("a finalizer by an operator", s.patch(s.admin, held))
		s.refused("taking it away", s.patch(b, `{"metadata":{"finalizers":null}}`), "ownerReferences and finalizers")
		s.allowed("changes without effect on it", s.patch(b, `{"metadata":{"labels":{"x":"y"}}}`))
		s.allowed("an operator takes it away", s.patch(s.admin, `{"metadata":{"finalizers":null}}`))

		t.Log("a new lock has none")
		s.allowed("an operator deletes it", s.delete(s.admin))
		s.refused("making it with a finalizer", s.createDry(b, content{holder: "b"}, "example.com/held"), "ownerReferences and finalizers")
	})
}

// The guard does not evaluate renewals of the holder. A write that also makes another change is no renewal.
func TestLock_RenewalWithMore(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, a, _ := guardedLock(t, kind)
		renew := func(change func(metav1.Object)) error {
			object := s.object(content{holder: "a", transitions: 3, renewed: epoch.Add(second), notes: map[string]string{"x": ""}})
			change(object)
			if kind == record.Lease {
				present, err := s.admin.CoordinationV1().Leases(s.namespace).Get(t.Context(), election, metav1.GetOptions{})
				s.must(present, err)
				object.SetResourceVersion(present.ResourceVersion)
			}
			return s.request(a, http.MethodPut).Name(election).Param("dryRun", metav1.DryRunAll).Body(object).Do(t.Context()).Error()
		}
		large := strings.Repeat("x", 70<<10)
		labels := map[string]string{}
		for i := range 700 {
			labels[strings.Repeat("x", 40)+strconv.Itoa(i)] = strings.Repeat("y", 60)
		}
		s.put(content{holder: "a", transitions: 3, notes: map[string]string{"x": ""}})
		s.refused("with an owner", renew(func(o metav1.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "gone", UID: "u"}})
		}), "ownerReferences and finalizers")
		s.refused("with a finalizer", renew(func(o metav1.Object) { o.SetFinalizers([]string{"example.com/held"}) }), "ownerReferences and finalizers")
		s.refused("with large labels", renew(func(o metav1.Object) { o.SetLabels(labels) }), "too large")
		s.refused("with a large annotation in the place of another", renew(func(o metav1.Object) { o.GetAnnotations()["x"] = large }), "too large")
		s.refused("with one more large annotation", renew(func(o metav1.Object) { o.GetAnnotations()["y"] = large }), "too large")
		if kind == record.ConfigMap {
			s.refused("with large data", renew(func(o metav1.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"x": large} }), "too large")
			s.refused("with large binary data", renew(func(o metav1.Object) { o.(*corev1.ConfigMap).BinaryData = map[string][]byte{"x": []byte(large)} }), "too large")
			s.refused("that makes the lock immutable", renew(func(o metav1.Object) { o.(*corev1.ConfigMap).Immutable = new(true) }), "immutable")
			s.refused("with a word as time", renew(func(o metav1.Object) {
				raw := o.GetAnnotations()[locks.LeaderElectionRecordAnnotationKey]
				o.GetAnnotations()[locks.LeaderElectionRecordAnnotationKey] = strings.Replace(raw, `"renewTime":"`, `"renewTime":"tomorrow `, 1)
			}))
		}
		s.allowed("a renewal", renew(func(metav1.Object) {}))
	})
}

func TestLock_Size(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, a, b := guardedLock(t, kind)
		other := s.podOf("o", "other").Kube()
		fill := func(field string, bytes int) string {
			return `{"metadata":{"` + field + `":{"x":"` + strings.Repeat("x", bytes) + `"}}}`
		}
		s.refused("annotations up to the limit", s.patch(other, fill("annotations", 256<<10-1000)), "limit 32768")
		s.refused("letters of three bytes", s.patch(other, `{"metadata":{"annotations":{"x":"`+strings.Repeat("€", 11<<10)+`"}}}`), "limit 32768")
		var many []string
		for i := range 700 {
			many = append(many, `"`+strings.Repeat("x", i%7+1)+strconv.Itoa(i)+`":"`+strings.Repeat("y", 60)+`"`)
		}
		s.refused("labels", s.patch(other, `{"metadata":{"labels":{`+strings.Join(many, ",")+`}}}`), "limit 32768")
		if kind == record.ConfigMap {
			s.refused("data", s.patch(other, `{"data":{"x":"`+strings.Repeat("x", 600<<10)+`"}}`), "limit 32768")
		}
		s.allowed("30 KiB of annotations", s.patch(other, fill("annotations", 30<<10)))
		s.refused("more by others", s.patch(other, fill("annotations", 33<<10)), "limit 32768")
		s.allowed("a request of a candidate", s.patch(b, fill("annotations", 40<<10)))
		s.refused("too much by a candidate", s.patch(b, fill("annotations", 50<<10)), "limit 49152")

		t.Log("data of an operator does not prevent writes that add nothing")
		s.allowed("an operator", s.patch(s.admin, fill("annotations", 100<<10)))
		s.allowed("a label in the place of more", s.patch(other, fill("annotations", 90<<10)))
		s.allowed("the holder renews", s.update(a, content{holder: "a", transitions: 3, renewed: epoch.Add(second), notes: map[string]string{"x": strings.Repeat("x", 90<<10)}}))

		t.Log("a write that changes the record is limited too: otherwise one acquisition could fill the object")
		s.put(content{holder: "a", transitions: 3})
		notes := func(bytes int) map[string]string { return map[string]string{"x": strings.Repeat("x", bytes)} }
		s.refused("a renewal that fills the lock", s.update(a, content{holder: "a", transitions: 3, renewed: epoch.Add(second), notes: notes(250 << 10)}), "too large")
		s.refused("an acquisition that fills the lock", s.update(b, content{holder: "b", transitions: 4, notes: notes(250 << 10)}), "too large")
		s.refused("an acquisition with 70 KiB", s.update(b, content{holder: "b", transitions: 4, notes: notes(70 << 10)}), "too large")
		s.allowed("an acquisition with 60 KiB", s.update(b, content{holder: "b", transitions: 4, notes: notes(60 << 10)}))
		s.put(content{holder: "a", transitions: 3, notes: notes(100 << 10)})
		s.allowed("an acquisition of a large lock, with a marker", s.update(b, content{holder: "b", transitions: 4, notes: map[string]string{
			"x": strings.Repeat("x", 100<<10), record.MarkerAnnotation: "v1 b 4 handover",
		}}))
	})
}

func TestLock_FieldManagers(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, a, b := guardedLock(t, kind)
		other := s.podOf("o", "other").Kube()
		s.refused("short keys, each of which counts more than its letters", s.applyNotes(other, "m", 1800), "limit 32768")
		managers, err := 0, error(nil)
		for ; err == nil && managers < 30; managers++ {
			err = s.applyNotes(other, fmt.Sprint("manager-", managers), 100)
		}
		s.refused("another manager of the same keys", err, "more than 16 managers")
		owned := fmt.Sprintf(`"f:%s":{}`, strings.Repeat("x", 130<<10)) // the field does not exist
		entry := `"managedFields":[{"manager":"m","operation":"Update","apiVersion":"` + s.version() +
			`","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{` + owned + `}}}}]`
		s.refused("a large entry", s.patch(other, `{"metadata":{`+entry+`}}`), "managedFields is too large")
		renewal := fmt.Sprintf(`{"metadata":{%s},"spec":{"renewTime":"2026-01-02T04:04:05.000000Z"}}`, entry)
		if kind == record.ConfigMap {
			later := content{holder: "a", transitions: 3, renewed: epoch.Add(second)}
			renewal = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q},%s}}`, locks.LeaderElectionRecordAnnotationKey, later.json(), entry)
		}
		s.refused("a large entry in a renewal", s.patch(a, renewal), "managedFields is too large")
		if managers < 8 {
			t.Errorf("%d managers are too many", managers)
		}
		s.allowed("the holder renews", s.update(a, content{holder: "a", transitions: 3, renewed: epoch.Add(second)}))
		s.allowed("a follower takes it", s.update(b, content{holder: "b", transitions: 4}))
	})
}

// version is the API version of the lock.
func (s *stage) version() string {
	if s.kind == record.ConfigMap {
		return "v1"
	}
	return "coordination.k8s.io/v1"
}

// applyNotes has a field manager own that many annotations, which are empty and have names of four letters.
func (s *stage) applyNotes(as kubernetes.Interface, manager string, keys int) error {
	s.t.Helper()
	notes := map[string]string{}
	for i := range keys {
		notes[fmt.Sprintf("%04d", i)] = ""
	}
	name := "Lease"
	if s.kind == record.ConfigMap {
		name = "ConfigMap"
	}
	body, err := json.Marshal(map[string]any{"apiVersion": s.version(), "kind": name, "metadata": map[string]any{"name": election, "annotations": notes}})
	harness.Must(s.t, err)
	return s.request(as, http.MethodPatch).Name(election).SetHeader("Content-Type", string(applyPatch)).
		Param("fieldManager", manager).Param("force", "true").Body(body).Do(s.t.Context()).Error()
}

// podElsewhere is a client with a token of a Pod of that name in another namespace, whose service
// account is called as the candidates' is and may write the lock.
func (s *stage) podElsewhere(name string) kubernetes.Interface {
	s.t.Helper()
	return cluster.ClientFor(s.t, s.cluster.Identity(s.t, cluster.IdentityOptions{
		Namespace: s.cluster.Namespace(s.t), PodName: name, ServiceAccount: account, ClusterRules: rights(),
	})).Kube()
}

// operator returns a client of a service account that may patch the lock and operate it.
func (s *stage) operator() kubernetes.Interface {
	s.t.Helper()
	config := s.cluster.Identity(s.t, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: "operator", ServiceAccount: "operator", Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, ResourceNames: []string{election},
			Verbs: []string{"get", "update", "patch", fence.OperateVerb},
		}},
	})
	return cluster.ClientFor(s.t, config).Kube()
}

// Annotations of incumbent are commands. Permission to patch the lock does not suffice to write them.
func TestLock_Commands(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s, _, b := guardedLock(t, kind)
		other, operator, coordinator := s.podOf("o", "other").Kube(), s.operator(), s.podOf("co", "coordinator").Kube()
		missing := "requires the verb operate"
		for _, key := range []string{
			record.HoldAnnotation, "incumbent.dev/later", // TestRights_Table has all
			locks.LeaseHolderKey, // an invalid key makes the record unreadable
		} {
			set := fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, key)
			change := fmt.Sprintf(`{"metadata":{"annotations":{%q:"y"}}}`, key)
			remove := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key)
			s.refused("another account sets "+key, s.patch(other, set), election, missing)
			s.allowed("an operator sets "+key, s.patch(operator, set))
			s.refused("another account changes "+key, s.patch(other, change), election, missing)
			s.refused("another account removes "+key, s.patch(other, remove), election, missing)
			s.allowed("another account adds a label", s.patch(other, `{"metadata":{"labels":{"x":"`+strings.ReplaceAll(key, "/", ".")+`"}}}`))
			s.allowed("a candidate changes "+key, s.patch(b, change))
			s.allowed("a coordinator removes "+key, s.patch(coordinator, remove))
		}
		s.refused("an operator releases the lock", s.update(operator, content{transitions: 3}), "only the holder may release")
		s.allowed("an administrator deletes the lock", s.delete(s.admin))
		s.refused("another account creates the lock with a hold", s.create(other, content{notes: map[string]string{record.HoldAnnotation: "{}"}}), missing)
	})
}
