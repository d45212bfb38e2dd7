package doors

import "slices"

// Shorthands for the rooms that several others open onto.
const (
	elections = "pilot/leaderelection"
	elector   = "pilot/leaderelection/k8sleaderelection"
	core      = "pilot/leaderelection/k8sleaderelection/internal/core"
	locks     = "pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	reconcile = "pilot/controllers/reconcile"
	revisions = "pkg/revisions"
	client    = "pkg/kube"
	features  = "pkg/features"
	errlist   = "internal/errlist"
	inspect   = "internal/inspect"
	members   = "internal/members"
	candidate = "internal/leasecandidate"
)

// room is one folder with all below it that is no room of its own.
type room struct {
	path string
	// doors are the rooms it may import, beside itself; "pilot/..." means every room
	// below pilot.
	doors []string
	// testDoors are further ones for its _test.go files.
	testDoors []string
	// only, when set, lists every package from outside the module that the room's
	// files may import, its tests aside.
	only []string
	// without lists packages, with all below them, that neither the room nor what
	// it imports may need.
	without []string
	// timeless forbids every mention of a clock.
	timeless bool
	// environment allows reading environment variables; environmentFile allows it in
	// one file.
	environment     bool
	environmentFile string
}

// harness is what tests of any room may use.
var harness = []string{"tests/cluster", "internal/testutil"}

// alone is what the elector and its locks do without, so that anyone can take
// them without the rest of this module.
var alone = []string{"istio.io", "github.com/prometheus", "sigs.k8s.io/controller-runtime"}

// library is what all that other people's programs import does without: Istio's flags come
// with its log package, which takes over the logging of the program, and with 250 packages.
var library = []string{"istio.io"}

var rooms = []room{
	// The ground floor.
	{path: errlist},
	{path: features, environment: true},
	{path: client, testDoors: harness, without: library},
	{path: revisions, doors: []string{client}, testDoors: harness, without: library},

	// The elector, usable by itself.
	{
		path: core, timeless: true,
		only: []string{"cmp", "errors", "fmt", "maps", "math", "slices", "strconv", "strings", "time"},
	},
	{path: locks, doors: []string{core}, testDoors: harness, without: alone},
	{path: elector, doors: []string{core, locks}, testDoors: harness, without: alone},

	// Elections and what guards them.
	{path: "internal/fence", doors: []string{locks, members}, testDoors: append([]string{elector}, harness...), without: library},
	{path: elections + "/fence", doors: []string{"internal/fence", elector, client}, testDoors: harness, without: library},
	{path: "internal/fence/install", doors: []string{elections, "internal/fence", locks, client}, testDoors: append([]string{revisions}, harness...), without: library},
	{path: elections + "/coordination", doors: []string{elector, locks, members}, testDoors: append(slices.Clone(harness), candidate), without: library},
	{path: candidate, doors: []string{elections + "/coordination", client}, testDoors: harness, without: library},
	// What people want to know of an election, for commands and pages: from objects alone.
	{path: inspect, doors: []string{elector, locks, members}, testDoors: harness, without: alone},
	// Who could lead what, published and read by Leases of their own.
	{path: members, testDoors: harness, without: alone},
	{
		path:      elections,
		doors:     []string{elector, locks, elections + "/fence", elections + "/coordination", candidate, client, revisions, errlist},
		testDoors: harness, without: library,
		// Istio-style constructors read what concerns an election, as istiod's do.
		environmentFile: "environment.go",
	},

	// The work. It gets a client and a context, and knows of no election.
	{path: "pilot/controllers", doors: []string{reconcile, client, revisions}, testDoors: harness},
	{path: reconcile, doors: []string{client}, testDoors: harness, without: library},

	// The server.
	{path: "internal/istiolog"},
	{path: "internal/migration", doors: []string{elections, locks, client}, testDoors: harness, without: library},
	{path: "pilot/debug", doors: []string{inspect, members, elections, elector, client}, testDoors: harness, without: library},
	{path: "pilot/bootstrap", doors: []string{"pilot/...", "pkg/...", "internal/..."}, testDoors: harness},
	// What pilot and electionctl have in common.
	{path: "cmd/fencecommand", doors: []string{"pilot/bootstrap", features, "internal/fence/install"}, testDoors: harness},
	{path: "cmd/playground", doors: []string{"cmd/...", "pilot/...", "pkg/...", "internal/...", "tests/cluster", "tests"}, environment: true},
	{path: "cmd/pilot", doors: []string{"cmd/fencecommand", "internal/fence/install", "internal/istiolog", "pilot/bootstrap", "pkg/..."}, testDoors: harness, environment: true},

	// Tests look at everything; nothing but a test looks at them.
	{path: "internal/testutil", doors: []string{revisions}, environment: true},
	{path: "tests/cluster", doors: []string{client, "internal/testutil"}, environment: true},
	{
		path: "tests", doors: []string{
			"cmd/...", "pilot/...", "pkg/...", "internal/...", "tests/cluster",
		},
		environment: true,
	},
}
