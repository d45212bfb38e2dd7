// Package play is what random runs of elections have in common, whether over stores in memory
// or on a real API server: who takes part beside whom, what a seed chooses, what can happen to
// them, and what must never be seen. How each of it is done is a World's matter.
package play
