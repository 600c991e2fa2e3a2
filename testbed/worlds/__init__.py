"""Random worlds against the proof: both logs of a partition, and who wrote which record.

A world is one partition with everything that can happen to it. The proof sees what a reader sees; the judge
sees the whole world and says where the answer is wrong. Run ``python -m testbed.worlds --help``.
"""
