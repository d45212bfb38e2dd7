// Package page serves the elections page: leaders, their revision and validity, the history of leaders, and a preview of
// another default revision.
//
// The server passes the elections as plain values (Config.Source) and signals changes (Config.Changed). CandidateWatch and
// LockReader observe in the cluster what the electors of the server do not know. Run stores the history and publishes a frame at
// most 20 times a second. A frame is immutable. Requests and streams of browsers only read the newest frame, so a slow browser
// delays no other browser and misses frames.
//
// The server renders HTML and SVG, so the page can be read without JavaScript. With JavaScript, a stream of server-sent
// events sends the whole <main>. idiomorph merges it into the document, so focus, scroll position and opened details
// remain. The Content-Security-Policy forbids inline styles and scripts. Identities are never interpreted as markup.
//
// The page is read-only, accepts only GET and HEAD, and checks the Host header. Otherwise another site could read it through
// a browser on the same machine (DNS rebinding).
package page
