package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/inspect"
)

const expires = "after a crash of the leader's process, followers wait for its lease"

// witnesses reports whether the candidates have a witness.
func (in *Input) witnesses() []Finding {
	with, _ := in.live(func(witness string) bool {
		return witness != inspect.UnreachableWitness && witness != inspect.NoWitness
	})
	without, lacking := in.live(func(witness string) bool { return witness == inspect.NoWitness })
	switch names, elections := in.live(func(witness string) bool { return witness == inspect.UnreachableWitness }); {
	case len(names) > 0:
		f := Finding{
			Severity: Warning, Elections: elections, Effect: "has no working witness", Advice: "Only the logs have the reason.", Command: "kubectl" + in.at() + " logs " + names[0] + " --all-containers",
			Cause: "the configured witness of " + in.shorten(names) + " does not respond; " + expires,
		}
		if p := in.podNamed(names[0]); p != nil {
			in.socket(&f, p, names)
		}
		return []Finding{f}
	case len(without)+len(with) == 0:
		return []Finding{{Severity: Unknown, Cause: "the witnesses are unknown, because no live candidate has a member Lease"}}
	case len(with) == 0:
		return []Finding{{
			Severity: Warning, Cause: "no candidate has a witness; " + expires,
			Advice: "Start the servers with --witness=parent, the default.",
		}}
	case len(without) > 0:
		return []Finding{{Severity: Well, Elections: lacking, Effect: "has candidates without a witness", Cause: in.shorten(without)}}
	}
	return []Finding{well("each candidate has a witness")}
}

// live returns the live candidates with a selected witness, and their elections (namespace/name).
func (in *Input) live(selected func(witness string) bool) (names, elections []string) {
	for _, c := range in.Candidates {
		if !c.Late && c.Down == "" && selected(c.Witness) {
			names, elections = append(names, c.Identity), append(elections, c.Namespace+"/"+c.Election)
		}
	}
	return sets.List(sets.New(names...)), sets.List(sets.New(elections...))
}

// podNamed returns a pod of any namespace, or nil.
func (in *Input) podNamed(name string) *corev1.Pod {
	for namespace := range in.Pods {
		if p := in.pod(namespace, name); p != nil {
			return p
		}
	}
	return nil
}

// Flags of the server and the subcommand of the witness.
const (
	witnessFlag  = "--witness=socket"
	socketFlag   = "--witness-socket="
	witnessServe = "witness"
)

// socket sets why no process serves the witness socket of a pod.
func (in *Input) socket(f *Finding, p *corev1.Pod, names []string) {
	serves := slices.IndexFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool { return slices.Contains(c.Args, witnessServe) })
	if serves >= 0 {
		c := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)[serves]
		f.Cause = fmt.Sprintf("container %s of %s does not serve the socket; %s", c.Name, in.shorten(names), expires)
		f.Advice = "Only the log of the witness has the reason."
		f.Command = fmt.Sprintf("kubectl -n %s logs %s -c %s", p.Namespace, p.Name, c.Name)
		return
	}
	for i, c := range p.Spec.Containers {
		path := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, socketFlag) })
		kind := slices.Index(c.Args, witnessFlag)
		if path < 0 || kind < 0 {
			continue
		}
		f.Cause = fmt.Sprintf("container %s of %s uses the witness socket %s, and no container of the pod serves it; %s",
			c.Name, in.shorten(names), strings.TrimPrefix(c.Args[path], socketFlag), expires)
		deployment := deploymentOf(p)
		if deployment == "" {
			return
		}
		at := fmt.Sprintf("/spec/template/spec/containers/%d/args/", i)
		f.Advice = "Use the parent process as witness."
		f.Command = fmt.Sprintf("kubectl -n %s patch deployment %s --type=json -p %s", p.Namespace, deployment, inspect.Quoted(oneLine([]any{
			map[string]string{"op": "test", "path": at + fmt.Sprint(path), "value": c.Args[path]},
			map[string]string{"op": "replace", "path": at + fmt.Sprint(kind), "value": "--witness=parent"},
			map[string]string{"op": "remove", "path": at + fmt.Sprint(path)},
		})))
		return
	}
}

// deploymentOf returns the Deployment of a pod, or "".
func deploymentOf(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if name, ok := strings.CutSuffix(o.Name, "-"+p.Labels["pod-template-hash"]); ok && o.Kind == "ReplicaSet" {
			return name
		}
	}
	return ""
}

// shorten lists the first names, or all if Wide is set.
func (in *Input) shorten(names []string) string {
	if more := len(names) - maxNames; more > 0 && !in.Wide {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
