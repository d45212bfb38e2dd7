// Package api holds the exported names that callers of istiod's and client-go's packages use: moving over is a
// change of import path, and stays one. What a later version takes from them does not compile here.
// `make api BASE=v0.1.0` compares everything that is exported with another version.
package api
