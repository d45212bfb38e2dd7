// Package debug is the elections page: who leads what, of which revision, for how much longer
// without another write, who led when, and what a change of the default revision would do.
//
// It asks nobody. The server hands it the present elections as plain values (Config.Source) and
// says when they may have changed (Config.Changed). Run keeps what it sees as history and
// publishes a frame at most 20 times a second. Each frame is immutable; requests and streams
// only read the newest one, so a slow reader holds up nobody and misses frames instead.
//
// The page is HTML and SVG from the server, readable without JavaScript. With it, one stream of
// server-sent events brings the whole <main>, which idiomorph morphs into the document, so that
// focus, scroll position and opened details stay. No style or script is inline: the
// Content-Security-Policy forbids both, and what an identity contains is never markup.
//
// The page is read-only, takes GET and HEAD alone, and answers only names that cannot be
// another site's: a browser on the same machine could otherwise be made to read it (DNS
// rebinding).
package debug
