package main

import "testing"

// A release can have a strategy only if the fences of all releases accept coordinated candidates.
func TestCoordinatedFences(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	lease := []string{"--set", "elections.lock=lease"}
	coordinated := append([]string{"--set", "elections.strategy=incumbent.dev/DefaultRevision"}, lease...)
	p.mustHelm(t, pilot("install", "stable", lease...)...)
	p.refused(t, pilot("install", "canary", coordinated...),
		"fence "+p.namespace+"-pilot-stable of this namespace rejects coordinated candidates", "`helm upgrade stable … --set fence.coordinated=true`")
	p.mustHelm(t, pilot("upgrade", "stable", append([]string{"--set", "fence.coordinated=true"}, lease...)...)...)
	p.mustHelm(t, pilot("install", "canary", coordinated...)...)
	p.refused(t, pilot("upgrade", "stable", lease...), "Deployment pilot-canary has coordinated elections (--election-strategy=incumbent.dev/DefaultRevision)", "--set fence.coordinated=true,elections.lock=lease")
	p.mustHelm(t, pilot("upgrade", "stable", append([]string{"--set", "fence.mode=warn"}, lease...)...)...)
	p.mustHelm(t, pilot("upgrade", "stable", coordinated...)...)
}
