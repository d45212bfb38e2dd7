// Command release writes the files of a release into a folder: archives of electionctl, an OCI archive of pilot's image, both charts,
// the Go modules, a krew manifest, an SBOM of each program, release notes, and SHA-256 sums. The same commit
// and Go version give the same bytes.
//
//	release -root .. -out ../dist -version 0.1.0
//
// With the argument image it writes only the image, as an OCI layout of static binaries on an empty base, without docker. Tools such as
// crane, skopeo and podman read both.
//
//	release image -root .. -out ../bin/image -version 0.1.0 -platforms linux/amd64,linux/arm64
package main
