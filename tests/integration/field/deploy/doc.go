// Package deploy tests the deployment of Gateways that users reported in public, on a real API server with
// servers of two revisions. The tests set the status of Deployments and Services.
package deploy
