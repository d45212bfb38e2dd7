// Package istiod runs the real istiod (pilot-discovery) next to incumbent's server, as Pods of one cluster with the charts and
// the fence. `make istiod` builds the program and runs the tests, which take about 20 minutes.
//
// A report lists for each scenario which process ran the work of the shared elections, by the logs of both programs. It also
// checks in the audit log that each revision's own controller writes the status of its Gateways.
package istiod
