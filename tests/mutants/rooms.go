package main

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// room is what mutants are planted in at once, and which tests judge them.
type room struct {
	name string
	// module is the folder of a module of its own; empty: the repository's.
	module string
	// packages are what the go command calls them, from the module's root.
	packages []string
	// files narrows a room to some of its packages' files, by their base names.
	files []string
	// not leaves some out.
	not []string
	// judges are tried in this order; those of the second pass, with a real API server,
	// on what the others have let survive.
	judges []judge
	budget time.Duration
}

// judge is a package whose tests judge a room's mutants.
type judge struct {
	pkg string
	// run and skip narrow it to some of its tests.
	run, skip string
	// second puts it into the second pass.
	second bool
	// together runs its tests as one, where starting them costs the most.
	together bool
	// cluster is the kind of cluster that stays up for it. Its tests stop no servers, and take what
	// concerns everyone away again; those of other judges start clusters of their own.
	cluster string
	// env is added to the environment.
	env []string
}

func (j judge) allows(name string) bool {
	if j.run != "" && !regexp.MustCompile("^("+j.run+")$").MatchString(name) {
		return false
	}
	return j.skip == "" || !regexp.MustCompile("^("+j.skip+")$").MatchString(name)
}

func (r room) includes(file string) bool {
	return (len(r.files) == 0 || slices.Contains(r.files, file)) && !slices.Contains(r.not, file)
}

// has reports whether a judge's tests belong to the room: to one of its packages, or to
// one below it.
func (r room) has(j judge) bool {
	return slices.ContainsFunc(r.packages, func(pkg string) bool {
		return j.pkg == pkg || strings.HasPrefix(j.pkg, pkg+"/")
	})
}

const (
	elections = "./pilot/leaderelection"
	elector   = elections + "/k8sleaderelection"
	core      = elector + "/internal/core"
	derive    = elector + "/internal/derive"
	codec     = elector + "/internal/codec"
	orders    = elector + "/orders"
	sim       = elector + "/internal/simulation"
	locks     = elector + "/k8sresourcelock"
	fence     = elections + "/fence"
	server    = "./pilot/bootstrap"
	ground    = "./tests/integration/ground"
)

// fewSeeds cuts the simulation down: a mutant that only one seed in thousands shows is
// rare, and each costs all of them.
var fewSeeds, someSeeds = []string{"SIM_SEEDS=60"}, []string{"SIM_SEEDS=600"}

// enumeration is the core's one test that takes half a minute.
const enumeration = "TestDecideEnumerated"

var rooms = []room{
	{
		name: "core", packages: []string{core, derive}, budget: 15 * time.Minute,
		judges: []judge{
			{pkg: derive},
			{pkg: core, skip: enumeration},
			{pkg: locks}, // what two objects mean: its tables are of MultiLock's words for them
			{pkg: sim, env: fewSeeds, skip: "TestPlantedBugs"},
			{pkg: elector},
			{pkg: sim, env: someSeeds, run: "TestSimulation", second: true},
			{pkg: core, run: enumeration, second: true},
		},
	},
	{
		name: "loop", packages: []string{elector, codec, orders}, budget: 20 * time.Minute,
		judges: []judge{{pkg: codec}, {pkg: orders}, {pkg: elector}, {pkg: elections}},
	},
	{
		name: "locks", packages: []string{locks}, budget: 15 * time.Minute,
		judges: []judge{{pkg: locks}, {pkg: locks + "/locktest"}, {pkg: elector}},
	},
	{
		name: "inspect", packages: []string{elections + "/inspect"}, budget: 5 * time.Minute,
		judges: []judge{{pkg: elections + "/inspect"}},
	},
	{
		name: "members", packages: []string{elections + "/members"}, budget: 5 * time.Minute,
		judges: []judge{{pkg: elections + "/members"}},
	},
	{
		// Who is chosen, which needs no API server.
		name: "coordination", packages: []string{elections + "/coordination"}, budget: 10 * time.Minute,
		files:  []string{"candidate.go", "observer.go", "plan.go", "strategy.go", "version.go", "words.go"},
		judges: []judge{{pkg: elections + "/coordination", env: fewSeeds, skip: "TestPlanAtRandomPlantedBugs", run: "TestPlan.*|TestOldestEmulationVersion|TestDefaultRevision|TestTheStrategyOfTheNewestBinaryCounts|TestChoicesAreOrders|TestFromLeaseCandidate|TestVersion.*|TestPublisherConfigIsChecked"}},
	},
	{
		name: "predecessor", packages: []string{elections}, files: predecessorFiles, budget: 15 * time.Minute,
		judges: []judge{
			{pkg: elections, skip: plays},
			{pkg: elections, run: plays, second: true, env: fewSeeds},
			{pkg: "./tests/integration/migration", run: "TestPredecessor.*", second: true, together: true},
		},
	},
	{
		name: "elections", packages: []string{elections}, not: predecessorFiles, budget: 20 * time.Minute,
		judges: []judge{
			{pkg: elections, skip: plays},
			{pkg: elections, run: plays, second: true, env: fewSeeds},
			{pkg: "./tests/integration/elections", run: "TestConfigurationErrors|TestGracefulStop.*|TestPerRevision.*|TestDisabled.*|TestWarm.*|TestSet.*|TestSeveral.*|TestStopLimit|TestDrainLimit", second: true, together: true},
		},
	},
	{
		name: "gate", packages: []string{fence}, files: gateFiles, budget: 10 * time.Minute,
		judges: []judge{{pkg: fence}},
	},
	{
		name: "policies", packages: []string{fence, fence + "/install"}, not: gateFiles, budget: 20 * time.Minute,
		judges: []judge{
			{pkg: fence}, {pkg: fence + "/install"},
			// Most of what is left is about verifying, which these few show.
			{pkg: "./tests/faults/fence", run: "TestFenceVerif.*|TestFenceModes|TestFenceReports.*", second: true, together: true, cluster: bare},
			{pkg: "./tests/faults/fence", skip: "TestFenceVerif.*|TestFenceModes|TestFenceReports.*|TestFenceAtTwo.*|TestFenceComesBack|TestFenceMoves.*|TestFenceFindsThe.*|TestFenceOfAnElectionAcross.*", second: true, together: true, cluster: bare},
		},
	},
	{
		name: "bootstrap", packages: []string{server}, budget: 40 * time.Minute,
		judges: []judge{
			{pkg: server, skip: serves + "|" + defines}, {pkg: "./cmd/pilot", run: "TestFence.*|TestWhatCannotBe.*", skip: launches},
			{pkg: server, run: serves, second: true, cluster: bare},
			{pkg: server, run: defines, second: true},
			{pkg: "./cmd/pilot", run: "TestEveryFlagOfTheFence.*", second: true, together: true},
			{pkg: ground, run: "TestServer.*|TestTwoRevisions.*|TestEvents.*", second: true, together: true, cluster: full},
		},
	},
	{
		name: "manifests", packages: []string{server + "/manifests"}, budget: 10 * time.Minute,
		judges: []judge{
			{pkg: server + "/manifests"}, {pkg: server, run: "TestAccess.*|TestDeployment.*", second: true, together: true},
			{pkg: ground, run: "TestManifests.*|TestTwoRevisions.*", second: true, together: true},
		},
	},
	{
		name: "cmd", packages: []string{"./cmd/pilot", "./cmd/fencecommand"}, budget: 20 * time.Minute,
		judges: []judge{{pkg: "./cmd/pilot", skip: launches}, {pkg: "./cmd/pilot", run: launches, second: true}},
	},
	{
		name: "electionctl", module: "electionctl", packages: []string{"./internal/ctl"}, budget: 20 * time.Minute,
		judges: []judge{{pkg: "./internal/ctl", cluster: bare}},
	},
	{
		name: "namespace", packages: []string{"./pilot/controllers/namespace"}, budget: 15 * time.Minute,
		judges: []judge{
			{pkg: "./pilot/controllers/namespace"},
			{pkg: ground, run: "TestBundle.*|TestTerminating.*|TestMissingRights.*|TestWarmed.*", second: true, together: true},
		},
	},
	{
		name: "reconcile", packages: []string{"./pilot/controllers/reconcile"}, budget: 15 * time.Minute,
		judges: []judge{
			{pkg: "./pilot/controllers/reconcile"}, {pkg: "./pilot/controllers/namespace"},
			{pkg: ground, run: "TestBundleIsSpread.*|TestBundleThat.*|TestTerminating.*|TestMissingRights.*|TestWarmed.*", second: true, cluster: full},
			{pkg: ground, run: "TestBundleIsRepaired.*", second: true},
		},
	},
	{
		name: "ingress", packages: []string{"./pilot/controllers/ingress"}, budget: 10 * time.Minute,
		judges: []judge{
			{pkg: "./pilot/controllers/ingress", run: pureIngress},
			{pkg: "./pilot/controllers/ingress", skip: pureIngress, second: true, cluster: bare},
		},
	},
	{
		name: "gatewaystatus", packages: []string{"./pilot/controllers/gatewaystatus"}, budget: 15 * time.Minute,
		judges: []judge{
			{pkg: "./pilot/controllers/gatewaystatus"},
			{pkg: "./tests/integration/gatewaystatus", second: true, cluster: bare},
		},
	},
	{
		name: "gatewaydeploy", packages: []string{"./pilot/controllers/gatewaydeploy"}, budget: 15 * time.Minute,
		judges: []judge{
			{pkg: "./pilot/controllers/gatewaydeploy", run: pureDeploy},
			{pkg: "./pilot/controllers/gatewaydeploy", skip: pureDeploy, second: true, cluster: full},
		},
	},
	{
		name: "revisions", packages: []string{"./pkg/revisions"}, budget: 15 * time.Minute,
		judges: []judge{{pkg: "./pkg/revisions"}, {pkg: ground, run: "TestDefault.*|TestHandler.*|TestTags.*", second: true, together: true}},
	},
	{
		name: "kube", packages: []string{"./pkg/kube"}, budget: 5 * time.Minute,
		judges: []judge{{pkg: "./pkg/kube"}},
	},
	{
		name: "cluster", budget: 30 * time.Minute,
		packages: []string{"./tests/cluster", "./tests/cluster/node", "./tests/cluster/internal/process", "./tests/cluster/internal/loopback"},
		judges: []judge{
			{pkg: "./tests/cluster/internal/process"},
			{pkg: "./tests/cluster/internal/loopback"},
			{pkg: "./tests/cluster", run: alone},
			{pkg: "./tests/cluster/node", run: alone},
			// Together costs a start for all, apart the quick ones judge before those that
			// stop servers and wait.
			{pkg: "./tests/cluster", skip: slowCluster + "|" + alone, second: true, together: true},
			{pkg: "./tests/cluster/node", skip: slowNode + "|" + stopsServers + "|" + alone, second: true, together: true, cluster: full},
			{pkg: "./tests/cluster", run: slowCluster, second: true},
			{pkg: "./tests/cluster/node", run: stopsServers, second: true, together: true},
			{pkg: "./tests/cluster/node", run: slowNode, second: true, cluster: full},
		},
	},
}

// alone are the tests of clusters and nodes that start none; slowCluster and slowNode are those
// that take more than a few seconds.
const (
	alone = "TestWhereTheServersAre|TestWhatIsLeftBehind.*|TestWhichAddress.*|TestADefinition.*|TestMissingPrograms.*|TestOptionsAreChecked|TestTheCommandLines|TestWhoIsHealthy.*|TestAKubeconfig.*|TestTheFolderOfACluster|TestDefaultsOf.*|" +
		"TestLastLines|TestLogRequests.*|TestExpand|TestBackoff|TestAddresses.*|TestLifeIsNotAsked.*|TestRetry.*|TestWhichPods.*|TestANodeTells.*|TestThePeriod.*|" +
		"TestHowAProcess.*|TestThePlan.*|TestWhichPart.*|TestWhichServers.*|TestWhoStandsStill|TestTheEnvironmentOf.*|TestWhatCertificates.*|TestTheKeysOf.*|TestTheObject.*|TestTheLife.*|TestWhatIsAsked.*|TestABinding.*|TestTheStatus.*|TestWhichLogs.*|TestWhatAnIdentity.*"
	slowCluster = "TestABackup.*|TestGatewayAPI|TestTheAPIServerCanPause.*|TestServersOfACluster.*"
	slowNode    = "TestReadiness.*|TestNothingOutlives.*|TestLifeWaits.*"
	// stopsServers are those of nodes that need a cluster of their own.
	stopsServers = "TestAPodThatWent.*|TestPodsOutlive.*|TestANodeThatStartsAnew.*"
)

// pureIngress are the ingress controller's tests that need no API server.
const pureIngress = "TestClass|TestUnknownClass|TestAddresses|TestNewNames.*|TestSlim|TestModes.*|TestWhichChanges.*|TestAConflict.*|TestWhichKinds.*|TestWhatIsWrong.*|TestTheStatus.*|TestAWriteThatFails.*"

// pureDeploy are those of gateway deployment.
const pureDeploy = "TestTemplates.*|TestOverlays|TestAGatewaysParameters.*|TestWhichGatewaysAreServed|TestWhatAGatewayGets|TestNames|TestPorts.*|TestInfrastructure|" +
	"TestWhatIs.*|TestAPlanThat.*|TestAnAccountThat.*|TestAFormerSelector.*|TestAnObjectThat.*|FuzzOverlay|TestTheTemplateIs.*|TestWhatAConfiguration.*|" +
	"TestWhoseAnObjectIs|TestTheDigest.*|TestWhichFieldsAreOurs|TestAnAnswerThatFails"

// predecessorFiles keep the lock of earlier versions; the other files are named elections.
var predecessorFiles = []string{"predecessor.go", "bothcovers.go"}

// serves are the server's tests that need an API server, and defines that whose definitions stay in
// it; launches are those of the program that need one, or that start it.
const (
	defines = "TestARowWaits.*"
	serves  = "TestAccess.*|TestDeploymentAsks.*|TestEveryFieldOfConfig.*|TestReadiness|TestReadyWithout.*|TestNotReady.*|TestMetricsAre.*|" +
		"TestElectionsPage|TestFailedController.*|TestSelfTest.*|TestFenceStandsOnly.*|TestFenceConfig.*|TestInstallations.*|TestMoveFrom.*|" +
		"TestLockThatWas.*|TestNobodyCampaigns.*|TestAServerThat.*|TestACommandThat.*"
	launches = "TestEveryFlagAndVariable.*|TestEveryFlagOfTheFence.*|TestFenceByTheEnvironment|TestSignal.*|TestSecondSignal.*|TestWhatCannotStart.*|TestAPod.*"
)

// plays are the tests of elections that play at random for many seconds.
const plays = "TestElectionsAtRandom.*"

// gateFiles are the client's side of the fence; the other files are the API server's.
var gateFiles = []string{"gate.go", "transport.go", "refusal.go"}
