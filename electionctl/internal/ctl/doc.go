// Package ctl is electionctl's commands: reads of elections, orders about them, and what an
// administrator does about the fence and the default revision. What elections mean is judged by
// internal/inspect, orders are the library's own, so nothing here decides.
package ctl
