// Command electionctl shows elections and changes their leaders. It is also a kubectl plugin (kubectl election). See docs/tools.md.
package main
