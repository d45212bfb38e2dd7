#!/bin/sh
# Runs while this process leads: electionctl run --election worker -- ./worker.sh
trap 'echo "stopping"; exit 0' TERM
echo "leading term $ELECTION_TRANSITIONS of $ELECTION_NAME with token $ELECTION_TOKEN"
while :; do
  sleep 1 &
  wait $!
done
