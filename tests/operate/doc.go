// Package operate breaks a control plane in the ways that people on call meet, and checks what each tool reports: electionctl, the
// elections page and the alerts. It generates the table in docs/tools.md.
package operate
