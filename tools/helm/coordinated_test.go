package main

import "testing"

// A release gets a strategy only if the fences of all releases know its candidates.
func TestCoordinatedFences(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	lease := []string{"--set", "elections.lock=lease"}
	coordinated := append([]string{"--set", "elections.strategy=incumbent.dev/DefaultRevision"}, lease...)
	p.mustHelm(t, pilot("install", "stable", lease...)...)
	p.refused(t, pilot("install", "canary", coordinated...),
		"the fence "+p.namespace+"-pilot-stable of this namespace does not know a coordinator's candidates", "`helm upgrade stable … --set fence.coordinated=true`")
	p.mustHelm(t, pilot("upgrade", "stable", append([]string{"--set", "fence.coordinated=true"}, lease...)...)...)
	p.mustHelm(t, pilot("install", "canary", coordinated...)...)
	p.refused(t, pilot("upgrade", "stable", lease...), "the elections of Deployment pilot-canary are coordinated (--election-strategy=incumbent.dev/DefaultRevision)", "--set fence.coordinated=true")
	p.mustHelm(t, pilot("upgrade", "stable", append([]string{"--set", "fence.mode=warn"}, lease...)...)...)
	p.mustHelm(t, pilot("upgrade", "stable", coordinated...)...)
}
