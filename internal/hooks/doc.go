// Package hooks calls code of a caller, such as loggers, observers and callbacks, where no step of an elector waits for it. A
// function that does not return delays only the functions after it in its Queue, and the end of Wait.
package hooks
