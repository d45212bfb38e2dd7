// Package diagnosis derives the causes of problems of elections from what was observed. The command-line tool and the elections page
// render its findings, so they agree. It sends no request and reads no clock.
//
// A rule reports only what the Input contains. Without an observation it reports neither a problem nor Well.
package diagnosis
