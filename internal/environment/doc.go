// Package environment reads environment variables, and names the variables of an election. pkg/features registers them with
// istio.io/pkg/env. Package leaderelection does not import that, because its log package redirects the logging of the program.
package environment
