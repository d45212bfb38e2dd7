package imports

// Paths that several rules use.
const (
	elections = "pilot/leaderelection"
	testKit   = "pilot/leaderelection/electiontest"
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

// importRule applies to a directory and everything below it without a separate rule.
type importRule struct {
	path string
	// allowed has the paths of other rules whose packages may be imported. "pilot/..." is every rule below pilot.
	allowed []string
	// testImports has additional paths for _test.go files.
	testImports []string
	// only, if set, has all packages outside the module that files other than tests may import.
	only []string
	// without has packages that must not be imported, directly or indirectly, including everything below them.
	without []string
	// timeless forbids reading a clock.
	timeless bool
	// environment allows reading environment variables. environmentFile allows it in one file.
	environment     bool
	environmentFile string
}

// harness has the paths that all tests may import.
var harness = []string{"tests/cluster", "internal/testutil/..."}

// alone has the packages that elector and locks do not need, so that they can be used without the rest of this module.
var alone = []string{"istio.io", "github.com/prometheus", "sigs.k8s.io/controller-runtime"}

// library has the packages that no package for other programs needs. Istio's flags depend on its log package, which replaces the
// logging of the program, and on 250 packages.
var library = []string{"istio.io"}

var rules = []importRule{
	// Base packages.
	{path: errlist},
	{path: features, environment: true},
	{path: "internal/apirequest", testImports: harness, without: library},
	{path: client, testImports: harness, without: library},
	{path: revisions, allowed: []string{client, "internal/apirequest"}, testImports: harness, without: library},

	// The elector, which can be used alone.
	{
		path: core, timeless: true,
		only: []string{"cmp", "errors", "fmt", "maps", "math", "slices", "strconv", "strings", "time"},
	},
	{path: locks, allowed: []string{core}, testImports: harness, without: alone},
	{path: elector, allowed: []string{core, locks}, testImports: harness, without: alone},

	// Elections and the fence.
	{path: "internal/fence", allowed: []string{locks, members}, testImports: append([]string{elector}, harness...), without: library},
	{path: elections + "/fence", allowed: []string{"internal/fence", elector, client, "internal/apirequest"}, testImports: harness, without: library},
	{path: "internal/fence/install", allowed: []string{elections, "internal/audit", "internal/fence", locks, client, "internal/apirequest"}, testImports: append([]string{revisions}, harness...), without: library},
	{path: elections + "/witness", allowed: []string{elector, locks, client, "internal/apirequest"}, testImports: harness, without: library, environment: true},
	{path: elections + "/coordination", allowed: []string{elector, locks, members}, testImports: harness, without: library},
	{path: candidate, allowed: []string{elections + "/coordination", client, "internal/apirequest"}, testImports: harness, without: library},
	// The state of an election, from lock objects.
	{path: inspect, allowed: []string{elector, locks, members}, testImports: harness, without: alone},
	// The past of elections, from audit logs.
	{path: "internal/audit", allowed: []string{inspect, locks, members}, testImports: harness, without: alone},
	// One Lease per process.
	{path: members, testImports: harness, without: alone},
	{
		path:        elections,
		allowed:     []string{elector, locks, elections + "/fence", elections + "/coordination", candidate, client, revisions, errlist, "internal/apirequest"},
		testImports: harness, without: library,
		// Constructors of Istio read the variables of an election.
		environmentFile: "environment.go",
	},

	// Controllers. They get a client and a context, and do not depend on elections.
	{path: "pilot/controllers", allowed: []string{reconcile, client, revisions, "internal/apirequest"}, testImports: harness},
	{path: reconcile, allowed: []string{client, "internal/apirequest"}, testImports: harness, without: library},

	// The server.
	{path: "internal/istiolog"},
	{path: "internal/migration", allowed: []string{elections, locks, client, "internal/apirequest"}, testImports: harness, without: library},
	{path: "pilot/debug", allowed: []string{inspect, members, elections, elector, client, "internal/apirequest"}, testImports: harness, without: library},
	{path: "pilot/bootstrap", allowed: []string{"pilot/...", "pkg/...", "internal/..."}, testImports: harness},
	// Code that pilot and electionctl share.
	{path: "cmd/fencecommand", allowed: []string{"pilot/bootstrap", features, "internal/fence/install"}, testImports: harness},
	{path: "cmd/playground", allowed: []string{"cmd/...", "pilot/...", "pkg/...", "internal/...", "tests/cluster", "tests"}, environment: true},
	{path: "cmd/pilot", allowed: []string{"cmd/fencecommand", "internal/fence/install", "internal/istiolog", "pilot/bootstrap", "pkg/..."}, testImports: harness, environment: true},

	{path: "examples/witness", allowed: []string{elector, locks, elections + "/witness"}, environment: true},

	// The test kit of other programs.
	{path: testKit, allowed: []string{elections, elections + "/fence", elector, locks, client, "internal/testutil/locktest"}, testImports: harness, without: library},

	// Only tests import tests.
	{path: "internal/testutil/locktest", allowed: []string{locks}},
	{path: "internal/testutil", allowed: []string{revisions}, environment: true},
	{path: "tests/cluster", allowed: []string{client, "internal/testutil", "internal/apirequest"}, environment: true},
	{
		path: "tests", allowed: []string{
			"cmd/...", "pilot/...", "pkg/...", "internal/...", "tests/cluster",
		},
		environment: true,
	},
}
