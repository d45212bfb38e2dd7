// Command image builds an OCI layout with a static program on an empty base, without docker. Tools such as crane, skopeo and
// podman read it. It is a separate module, so that incumbent does not depend on registry libraries.
//
//	image -out bin/image -program pilot -platform linux/amd64 -version 0.1.0 -revision COMMIT -licence LICENSE
package main
