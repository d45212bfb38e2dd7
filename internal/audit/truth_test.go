package audit

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/auditlog"
)

// The disturbances of a log.
const (
	shuffled = 1 << iota
	repeated
	otherFields
	severalFiles
	compressed
	wrapped
	brokenLine
	cutOff
	withoutBodies
	jumpingClock
	withoutResults // of writes of non-leaders
	queries        // that look like a dry run
	allDisturbances
)

// past is a random history of two elections. Three pods lead them in turn and write objects that the locks guard.
type past struct {
	*auditlog.Script
	*rand.Rand
	leaders     map[string]string
	transitions map[string]int
	disturb     uint
	// guilty has the locks whose objects a non-leader wrote. excused is true if the leader of bundles made each write of gadgets: then
	// no log shows that the other lock guards them.
	guilty  map[string]bool
	excused bool
}

var (
	pods = []string{"stable-1", "stable-2", "canary-1"}
	// kinds are the resources that the locks guard. A guard names configmaps.
	kinds = map[string]string{auditlog.Bundles: "configmaps", "other": "gadgets"}
)

func newPast(t *testing.T, seed uint64, disturb uint) *past {
	p := &past{auditlog.New(t), rand.New(rand.NewPCG(seed, 0)), map[string]string{}, map[string]int{}, disturb, map[string]bool{}, true}
	p.Bare = disturb&withoutBodies != 0
	p.Lease = 1000
	for _, lock := range []string{auditlog.Bundles, "other"} {
		p.change(lock, "canary-1")
		p.change(lock, "stable-1")
		p.write(lock, "stable-1", "a", "")
		p.write(lock, "stable-1", "b", "")
	}
	for range 10 + p.IntN(30) {
		p.step()
	}
	return p
}

// lock adds a write of a lock.
func (p *past) lock(lock, who, holder string) {
	p.Play(fmt.Sprintf("hold %s %s %s %d", lock, who, holder, p.transitions[lock]))
}

// change makes a pod the leader.
func (p *past) change(lock, pod string) {
	from := p.leaders[lock]
	switch way := p.IntN(3); {
	case from == "" || way == 0:
		p.transitions[lock]++ // the record expired. Until it is overwritten, no other process knows
	case way == 1:
		p.lock(lock, from, "-")
		p.transitions[lock]++
		p.leaders[lock] = ""
	default:
		p.transitions[lock]++
		p.lock(lock, from, pod)
		p.leaders[lock] = ""
	}
	if p.IntN(4) == 0 {
		p.breach(lock)
	}
	p.lock(lock, pod, pod)
	p.leaders[lock] = pod
	p.write(lock, pod, "a", "") // a controller writes when it begins
}

// write adds a write of an object that a lock guards.
func (p *past) write(lock, pod, name, query string) {
	p.Next()
	r := auditlog.Request{
		Verb: "patch", Resource: kinds[lock], Namespace: "shop", Name: name, Who: pod, Code: 200, Stage: auditlog.Complete, Query: query, Level: "RequestResponse",
		Object: auditlog.Fields{"metadata": auditlog.Fields{"name": name, "namespace": "shop", "resourceVersion": fmt.Sprint(p.Version)}},
	}
	if p.disturb&withoutResults != 0 && pod != p.leaders[lock] {
		r.Stage = auditlog.Received
	}
	p.Log(r)
	p.excused = p.excused && (lock == auditlog.Bundles || pod == p.leaders[auditlog.Bundles])
}

// breach adds a write of a pod that does not lead.
func (p *past) breach(lock string) {
	if p.Uint64()%3 != 0 || p.transitions[lock] < 2 {
		return
	}
	pod := pods[p.IntN(len(pods))]
	if pod == p.leaders[lock] {
		return
	}
	query := ""
	if p.disturb&queries != 0 {
		query = "fieldManager=dryRun=All"
	}
	p.guilty[lock] = true
	for range 1 + p.IntN(3) {
		p.write(lock, pod, []string{"a", "b"}[p.IntN(2)], query)
	}
}

func (p *past) step() {
	lock := []string{auditlog.Bundles, "other"}[p.IntN(2)]
	leader := p.leaders[lock]
	follower := pods[p.IntN(len(pods))]
	switch p.IntN(7) {
	case 0:
		if follower != leader {
			p.change(lock, follower)
		}
	case 1:
		p.lock(lock, leader, leader)
	case 2:
		if p.IntN(8) == 0 {
			p.breach(lock)
		}
	case 3:
		p.Next()
		p.Log(auditlog.Request{Verb: "patch", Resource: kinds[lock], Namespace: "shop", Name: "a", Who: follower, Code: 403, Stage: auditlog.Complete})
	case 4:
		p.Next()
		p.Log(auditlog.Request{Verb: "patch", Resource: kinds[lock], Namespace: "shop", Name: "a", Who: follower, Code: 200, Stage: auditlog.Complete, Query: "dryRun=All"})
	default:
		p.write(lock, leader, []string{"a", "b"}[p.IntN(2)], "")
	}
	if p.disturb&jumpingClock != 0 && p.disturb&(withoutBodies|withoutResults) == 0 {
		p.Clock = p.Clock.Add(-2 * 1e9 * 2)
	}
}

// files returns the disturbed log.
func (p *past) files() (all []string) {
	lines := strings.SplitAfter(strings.TrimSuffix(p.Lines.String(), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	if p.disturb&repeated != 0 {
		for range 5 {
			lines = append(lines, lines[p.IntN(len(lines))])
		}
	}
	if p.disturb&shuffled != 0 {
		p.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	}
	if p.disturb&otherFields != 0 {
		for i := range lines {
			lines[i] = strings.Replace(lines[i], "{", `{"new":[{"verb":"get"}],`, 1)
		}
	}
	if p.disturb&wrapped != 0 {
		for i, line := range lines {
			lines[i] = fmt.Sprintf("{\"logGroup\":\"one\",\"message\":%q}\n", line)
		}
	}
	if p.disturb&brokenLine != 0 {
		lines = slices.Insert(lines, 1+p.IntN(len(lines)-2), lines[0][:len(lines[0])/2]+"\n")
	}
	parts := [][]string{lines}
	if p.disturb&severalFiles != 0 {
		at := 1 + p.IntN(len(lines)-1)
		parts = [][]string{lines[at:], lines[:at]}
	}
	for i, part := range parts {
		text := strings.Join(part, "")
		if p.disturb&(compressed|cutOff) != 0 {
			var packed bytes.Buffer
			zip := gzip.NewWriter(&packed)
			_, _ = zip.Write([]byte(text))
			_ = zip.Close()
			text = packed.String()
		}
		if p.disturb&cutOff != 0 && i == 0 {
			text = text[:len(text)-1-p.IntN(min(len(text)-20, 40))]
		}
		all = append(all, text)
	}
	return all
}

// FuzzTruth compares the verdict about a disturbed log with the history that was logged. A log may not suffice, but it convicts no
// innocent pod, and acquits no other.
func FuzzTruth(f *testing.F) {
	for seed := range uint64(250) {
		f.Add(seed, uint(0))
		f.Add(seed, uint(1)<<(seed%12))
		f.Add(seed, uint(rand.New(rand.NewPCG(seed, 1)).Uint64()%allDisturbances))
	}
	f.Fuzz(func(t *testing.T, seed uint64, disturb uint) {
		disturb %= allDisturbances
		p := newPast(t, seed, disturb)
		log := NewLog()
		for i, text := range p.files() {
			if err := log.Read(fmt.Sprintf("log%d", i+1), strings.NewReader(text)); err != nil {
				return // it does not suffice
			}
		}
		guilty := p.guilty[auditlog.Bundles] || p.guilty["other"] && !p.excused
		r := Examine(log, Options{Guards: []Guard{{Lock: auditlog.Bundles, Resources: []string{"configmaps"}}}})
		switch convicted := len(r.Findings) > 0; {
		case convicted && len(p.guilty) == 0:
			t.Errorf("seed %d, disturbances %b: convicted: %s", seed, disturb, summary(r))
		case guilty && !convicted && len(r.Incomplete) == 0:
			t.Errorf("seed %d, disturbances %b: acquitted, notes %q, not judged %v", seed, disturb, r.Notes, r.NotJudged)
		}
	})
}
