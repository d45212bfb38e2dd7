// Package features reads the environment. The server calls FromEnv once and passes the values down.
//
// The variables are registered with istio.io/pkg/env, under Istio's names if Istio has them. The getters of that package
// log an invalid value and use the default. FromEnv returns an error that names the variable.
package features
