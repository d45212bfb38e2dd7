"""Runs while this process leads: electionctl run --election worker -- python3 worker.py"""
import os
import signal
import sys


def stop(number, frame):
    print("stopping", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
print("leading term", os.environ["ELECTION_TRANSITIONS"], "of", os.environ["ELECTION_NAME"],
      "with token", os.environ["ELECTION_TOKEN"], flush=True)
while True:
    signal.pause()
