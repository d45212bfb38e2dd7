// Package fence renders ValidatingAdmissionPolicies that make the API server reject the writes of pods that do not lead.
//
// A Declaration names an election, the service accounts of its candidates, and the writes that only the leader may make.
// Render returns the policies and bindings of a Set of declarations. The lock object is the parameter of each policy, so
// a policy follows the lock without any further writes. Package install installs and verifies a Set.
//
// Two kinds of policies protect each election:
//
//   - Work policies reject the guarded writes of a candidate's service account unless the lock names its pod.
//   - Lock policies allow only valid changes of the lock object.
package fence
