// Package doors holds the module to its floor plan: which room may import which.
//
// A room is a folder with all below it. The table in rooms.go gives each its
// doors; a package outside every room is reported, so a new room starts with a
// line there. Beside the doors within the module it keeps rooms free of packages
// that they promise to do without, keeps reads of the environment in one place,
// and asks each package for a doc.go.
package doors
