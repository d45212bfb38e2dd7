// Command image puts a static program on an empty base, without docker: an OCI layout, which tools such as
// crane, skopeo and podman read. A module of its own, so that what registries need stays out of incumbent's.
//
//	image -out bin/image -program pilot -platform linux/amd64 -version 0.1.0 -revision COMMIT -licence LICENSE
package main
