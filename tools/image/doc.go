// Command image builds an OCI layout with a static program on an empty base, without docker. Tools such as crane, skopeo and
// podman read it.
//
//	image -root .. -out ../bin/image -version 0.1.0 -platforms linux/amd64,linux/arm64
package main
