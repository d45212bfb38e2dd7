// Package controllers tests on a real API server, with the permissions of the chart: the namespace
// controller, and servers with several controllers and clusters.
package controllers
