// Package api checks the exported names that callers of istiod's and client-go's packages use. It does not compile if one of them is
// removed or changed. `make api BASE=v0.1.0` compares all exported names with another version.
package api
